package deploy

import (
	"hash/fnv"
	"slices"

	"github.com/dgryski/go-rendezvous"
)

// ring says which of some nodes a subscription is dispatched by. Every node that
// knows the same nodes says the same, and a node that comes or goes moves only
// what it has.
type ring struct{ nodes *rendezvous.Rendezvous }

func newRing(nodes []string) ring {
	nodes = slices.Clone(nodes)
	slices.Sort(nodes)
	return ring{rendezvous.New(nodes, hash)}
}

// owner is the node of a subscription of a database, "" where there are none.
func (r ring) owner(database, group string) string { return r.nodes.Lookup(database + "/" + group) }

// hash is FNV-1a, whose bits are mixed once more: rendezvous hashing combines
// the hashes of two texts, and those of names that differ in the last letter
// only would otherwise differ in few bits.
func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	x := h.Sum64()
	// The finaliser of MurmurHash3.
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

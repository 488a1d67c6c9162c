package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"hash/crc32"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// A backup is a line of text and then blocks, all numbers big-endian:
//
//	tidemark-backup 1\n
//	kind (1) | length (4) | payload | checksum (4)
//
// A block's checksum is the CRC-32C of the checksum before it, its kind, its
// length and its payload, so a block that is missing, doubled or in another
// place is noticed where it is. The kinds, in their order:
//
//	H   once: taken (8, nanoseconds since 1970) | spaces (4) | the engine's name
//	S   begins a space: its id (4)
//	R   rows of the space, in the order of their keys, each as
//	    key length (uvarint) | key | value length (uvarint) | value
//	E   ends the space: rows (8) | bytes (8) | SHA-256 of its rows (32)
//	T   once, the end: spaces (4) | rows (8) | bytes (8)
const (
	magicHead = "tidemark-backup "
	// version is the version of the format that this code writes and reads.
	version = 1

	kindHeader  = 'H'
	kindSpace   = 'S'
	kindRows    = 'R'
	kindEnd     = 'E'
	kindTrailer = 'T'

	headerBytes   = 8 + 4
	spaceBytes    = 4
	endBytes      = 8 + 8 + sha256.Size
	trailerBytes  = 4 + 8 + 8
	preludeBytes  = 1 + 4
	checksumBytes = 4
)

// blockBytes is how much of rows a block gathers: large enough that a commit a
// block is not one a row, small beside what a commit may have.
const blockBytes = 1 << 20

// maxBlockBytes bounds a block, which holds one row at least. It is above what
// any engine takes as one commit.
const maxBlockBytes = 256 << 20

// maxNameBytes bounds an engine's name.
const maxNameBytes = 64

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum goes on from the checksum of the block before.
func checksum(before uint32, prelude, payload []byte) uint32 {
	sum := crc32.Update(0, castagnoli, binary.BigEndian.AppendUint32(nil, before))
	sum = crc32.Update(sum, castagnoli, prelude)
	return crc32.Update(sum, castagnoli, payload)
}

func appendHeader(dst []byte, h Header) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.Taken.UnixNano()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.Spaces))
	return append(dst, h.Engine...)
}

func decodeHeader(payload []byte) (Header, error) {
	if len(payload) < headerBytes || len(payload) > headerBytes+maxNameBytes {
		return Header{}, damaged("its header has %d bytes", len(payload))
	}
	return Header{
		Taken:  time.Unix(0, int64(binary.BigEndian.Uint64(payload))).UTC(),
		Spaces: int(binary.BigEndian.Uint32(payload[8:])),
		Engine: string(payload[headerBytes:]),
	}, nil
}

func appendRow(dst, key, value []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	dst = append(dst, key...)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

// cutRow splits the first row from those after it.
func cutRow(rows []byte) (key, value, rest []byte, ok bool) {
	if key, rest, ok = cutSized(rows); !ok {
		return nil, nil, nil, false
	}
	value, rest, ok = cutSized(rest)
	return key, value, rest, ok
}

func cutSized(rows []byte) (part, rest []byte, ok bool) {
	size, n := binary.Uvarint(rows)
	if n <= 0 || size > uint64(len(rows)-n) {
		return nil, nil, false
	}
	end := n + int(size)
	return rows[n:end:end], rows[end:], true
}

// spaceSum is what a space's rows add up to.
type spaceSum struct {
	id     engine.SpaceID
	rows   uint64
	bytes  uint64
	digest hash.Hash
}

func newSpaceSum(id engine.SpaceID) *spaceSum { return &spaceSum{id: id, digest: sha256.New()} }

// add counts a row; encoded is the row as appendRow writes it.
func (s *spaceSum) add(key, value, encoded []byte) {
	s.rows++
	s.bytes += uint64(len(key) + len(value))
	_, _ = s.digest.Write(encoded) // A hash takes everything.
}

// end is the payload of the block that ends the space.
func (s *spaceSum) end() []byte {
	end := binary.BigEndian.AppendUint64(nil, s.rows)
	end = binary.BigEndian.AppendUint64(end, s.bytes)
	return s.digest.Sum(end)
}

func appendTrailer(dst []byte, p Progress) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.Spaces))
	dst = binary.BigEndian.AppendUint64(dst, p.Rows)
	return binary.BigEndian.AppendUint64(dst, p.Bytes)
}

// damaged is the refusal of a backup that is not as it was written.
func damaged(format string, args ...any) error {
	return fault.New(fault.Unavailable, "the backup is damaged or cut off and is not used: "+format+"; take another copy of it", args...)
}

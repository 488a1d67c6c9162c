package backup

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// Reader reads a backup and refuses one that is not as it was written. What
// Next gave is of a whole block; that the backup is whole is known when Next
// returned false and Err is nil.
type Reader struct {
	from     *bufio.Reader
	header   Header
	progress Progress
	err      error
	// sum is the checksum of the block before, and blocks how many were read.
	sum    uint32
	blocks int

	// space is the one whose rows are read, nil between two; sums are those
	// that are done.
	space *spaceSum
	sums  []*spaceSum
	// previous is the last key of the space.
	previous []byte
	// payload is the memory of blocks.
	payload bytes.Buffer
	rows    []Row
}

// Row is a key and its value. They are valid until the next call of Next.
type Row struct{ Key, Value []byte }

// NewReader reads the beginning of a backup.
func NewReader(from io.Reader) (*Reader, error) {
	r := &Reader{from: bufio.NewReaderSize(from, 64<<10)}
	if err := r.readMagic(); err != nil {
		return nil, err
	}
	kind, payload, err := r.block()
	if err != nil {
		return nil, err
	}
	if kind != kindHeader {
		return nil, damaged("it begins with a block %q", kind)
	}
	r.header, err = decodeHeader(payload)
	return r, err
}

func (r *Reader) readMagic() error {
	magic, err := r.from.ReadSlice('\n')
	number, ours := strings.CutPrefix(strings.TrimSuffix(string(magic), "\n"), magicHead)
	written, parseErr := strconv.Atoi(number)
	switch {
	case errors.Is(err, io.EOF) && len(magic) == 0:
		return damaged("it is empty")
	case !ours || parseErr != nil || err != nil:
		return fault.New(fault.InvalidClause, "this is no Tidemark backup: it does not begin with %q", strings.TrimSpace(magicHead))
	case written != version:
		return fault.New(fault.InvalidClause, "the backup has format %d and this program reads format %d; use a newer program", written, version)
	}
	return nil
}

// Header is what the backup says of itself.
func (r *Reader) Header() Header { return r.header }

// Progress is how much was read.
func (r *Reader) Progress() Progress { return r.progress }

// Next reads the next rows, and reports whether there are any.
func (r *Reader) Next() bool {
	for r.err == nil {
		var kind byte
		var payload []byte
		if kind, payload, r.err = r.block(); r.err != nil {
			return false
		}
		switch {
		case kind == kindSpace && r.space == nil:
			r.err = r.beginSpace(payload)
		case kind == kindRows && r.space != nil:
			if r.err = r.takeRows(payload); r.err == nil {
				return true
			}
		case kind == kindEnd && r.space != nil:
			r.err = r.endSpace(payload)
		case kind == kindTrailer && r.space == nil:
			r.err = r.end(payload)
			return false
		default:
			r.err = damaged("block %d is a %q, which cannot stand there", r.blocks, kind)
		}
	}
	return false
}

// Space is whose rows they are.
func (r *Reader) Space() engine.SpaceID { return r.space.id }

// Rows are what Next read, in the order of their keys.
func (r *Reader) Rows() []Row { return r.rows }

// Err is why the backup is refused, nil at its end.
func (r *Reader) Err() error {
	if errors.Is(r.err, io.EOF) {
		return nil
	}
	return r.err
}

// block reads a block and compares its checksum.
func (r *Reader) block() (kind byte, payload []byte, err error) {
	r.blocks++
	var prelude [preludeBytes]byte
	if _, err := io.ReadFull(r.from, prelude[:]); err != nil {
		return 0, nil, r.cutOff(err)
	}
	size := binary.BigEndian.Uint32(prelude[1:])
	if size > maxBlockBytes {
		return 0, nil, damaged("block %d says that it has %d bytes, and %d is the most", r.blocks, size, maxBlockBytes)
	}
	// It grows with what is there: a length that is wrong takes no memory.
	r.payload.Reset()
	if _, err := io.CopyN(&r.payload, r.from, int64(size)); err != nil {
		return 0, nil, r.cutOff(err)
	}
	var sum [checksumBytes]byte
	if _, err := io.ReadFull(r.from, sum[:]); err != nil {
		return 0, nil, r.cutOff(err)
	}
	payload = r.payload.Bytes()
	r.sum = checksum(r.sum, prelude[:], payload)
	if r.sum != binary.BigEndian.Uint32(sum[:]) {
		return 0, nil, damaged("block %d is not as it was written", r.blocks)
	}
	return prelude[0], payload, nil
}

// cutOff is the refusal where reading ended within the backup.
func (r *Reader) cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged("it ends within block %d", r.blocks)
	}
	return fault.New(fault.Unavailable, "the backup cannot be read past block %d: %w", r.blocks-1, err)
}

func (r *Reader) beginSpace(payload []byte) error {
	if len(payload) != spaceBytes {
		return damaged("block %d begins a space with %d bytes", r.blocks, len(payload))
	}
	id := engine.SpaceID(binary.BigEndian.Uint32(payload))
	if n := len(r.sums); n > 0 && r.sums[n-1].id <= id {
		return damaged("space %d follows space %d", id, r.sums[n-1].id)
	}
	r.space, r.previous = newSpaceSum(id), nil
	return nil
}

func (r *Reader) takeRows(payload []byte) error {
	r.rows = r.rows[:0]
	for rest := payload; len(rest) > 0; {
		key, value, after, ok := cutRow(rest)
		if !ok {
			return damaged("block %d has a row that does not end", r.blocks)
		}
		if r.space.rows > 0 && bytes.Compare(r.previous, key) >= 0 {
			return damaged("block %d has rows out of order", r.blocks)
		}
		r.previous = append(r.previous[:0], key...)
		r.space.add(key, value, rest[:len(rest)-len(after)])
		r.progress.Rows++
		r.progress.Bytes += uint64(len(key) + len(value))
		r.rows = append(r.rows, Row{Key: key, Value: value})
		rest = after
	}
	return nil
}

func (r *Reader) endSpace(payload []byte) error {
	if !bytes.Equal(payload, r.space.end()) {
		return damaged("space %d does not hold what it says at its end", r.space.id)
	}
	r.sums = append(r.sums, r.space)
	r.space = nil
	r.progress.Spaces++
	return nil
}

// end compares the counts, and that nothing follows. Its nil is io.EOF.
func (r *Reader) end(payload []byte) error {
	if len(payload) != trailerBytes || !bytes.Equal(payload, appendTrailer(nil, r.progress)) || r.progress.Spaces != r.header.Spaces {
		return damaged("it does not hold as much as it says at its end")
	}
	switch _, err := r.from.ReadByte(); {
	case err == nil:
		return damaged("something follows its end")
	case !errors.Is(err, io.EOF):
		return r.cutOff(err)
	}
	return io.EOF
}

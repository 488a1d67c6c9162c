package backup

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

// writer writes the blocks of a backup.
type writer struct {
	to       io.Writer
	tell     func(Progress)
	progress Progress
	// sum is the checksum of the block before.
	sum uint32
	// space is the one whose rows are written; rows are those of the next block.
	space *spaceSum
	rows  []byte
	// frame is the memory of blocks.
	frame []byte
}

func newWriter(to io.Writer, header Header) (*writer, error) {
	w := &writer{to: to}
	if _, err := fmt.Fprintf(to, "%s%d\n", magicHead, version); err != nil {
		return nil, err
	}
	return w, w.block(kindHeader, appendHeader(nil, header))
}

// block writes one block with one Write.
func (w *writer) block(kind byte, payload []byte) error {
	w.frame = append(w.frame[:0], kind)
	w.frame = binary.BigEndian.AppendUint32(w.frame, uint32(len(payload)))
	w.sum = checksum(w.sum, w.frame, payload)
	w.frame = append(w.frame, payload...)
	w.frame = binary.BigEndian.AppendUint32(w.frame, w.sum)
	if _, err := w.to.Write(w.frame); err != nil {
		return err
	}
	if w.tell != nil {
		w.tell(w.progress)
	}
	return nil
}

func (w *writer) beginSpace(id engine.SpaceID) error {
	w.space = newSpaceSum(id)
	return w.block(kindSpace, binary.BigEndian.AppendUint32(nil, uint32(id)))
}

// row adds a row of the space.
func (w *writer) row(key, value []byte) error {
	if len(w.rows) > 0 && len(w.rows)+len(key)+len(value) > blockBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	from := len(w.rows)
	w.rows = appendRow(w.rows, key, value)
	w.space.add(key, value, w.rows[from:])
	w.progress.Rows++
	w.progress.Bytes += uint64(len(key) + len(value))
	return nil
}

func (w *writer) flush() error {
	if len(w.rows) == 0 {
		return nil
	}
	err := w.block(kindRows, w.rows)
	w.rows = w.rows[:0]
	return err
}

func (w *writer) endSpace() error {
	if err := w.flush(); err != nil {
		return err
	}
	w.progress.Spaces++
	return w.block(kindEnd, w.space.end())
}

// close writes the end of the backup; without it the backup is refused.
func (w *writer) close() error {
	return w.block(kindTrailer, appendTrailer(nil, w.progress))
}

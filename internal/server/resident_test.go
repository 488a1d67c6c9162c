// The race detector takes several times the memory of what it watches, and the
// resident size is told by Linux alone.
//go:build linux && !race

package server_test

import (
	"os"

	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

func init() {
	residentSize = func() (int64, error) {
		now, _, err := nodetest.Resident(os.Getpid())
		return now, err
	}
}

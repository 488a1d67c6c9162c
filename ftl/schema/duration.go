package schema

import (
	"strconv"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// units are the units of a duration, from the largest to the smallest, which is
// the order they are written in.
var units = []struct {
	name string
	size time.Duration
}{
	{"d", 24 * time.Hour},
	{"h", time.Hour},
	{"m", time.Minute},
	{"s", time.Second},
	{"ms", time.Millisecond},
}

// MaxDuration is the longest that a schema names: 10,000 days.
const MaxDuration = 10_000 * 24 * time.Hour

// ParseDuration reads a duration: whole numbers with the units d, h, m, s and
// ms, from the largest to the smallest, each once, as in 1d3h. Anything else is
// fault.InvalidClause.
func ParseDuration(text string) (time.Duration, error) {
	malformed := func() (time.Duration, error) {
		return 0, fault.New(fault.InvalidClause, "%q is no duration; write whole numbers with d, h, m, s or ms, the largest first, as in 1d3h or 30s", text)
	}
	if text == "" {
		return malformed()
	}
	var total time.Duration
	next := 0
	for rest := text; rest != ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		number := rest[:digits]
		rest = rest[digits:]
		letters := len(rest) - len(strings.TrimLeft(rest, "dhms"))
		unit := rest[:letters]
		rest = rest[letters:]
		for next < len(units) && units[next].name != unit {
			next++
		}
		if number == "" || next == len(units) {
			return malformed()
		}
		size := units[next].size
		next++
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n > int64((MaxDuration-total)/size) {
			return 0, fault.New(fault.InvalidClause, "%s is longer than %s", text, FormatDuration(MaxDuration))
		}
		total += time.Duration(n) * size
	}
	return total, nil
}

// FormatDuration writes a duration as ParseDuration reads it; what is shorter
// than a millisecond is left out.
func FormatDuration(d time.Duration) string {
	var text strings.Builder
	for _, unit := range units {
		if n := d / unit.size; n > 0 {
			text.WriteString(strconv.FormatInt(int64(n), 10) + unit.name)
			d -= n * unit.size
		}
	}
	if text.Len() == 0 {
		return "0s"
	}
	return text.String()
}

// parseCount reads a whole number from 0 to limit, without needless zeros.
func parseCount(text string, limit int) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n <= limit && formatCount(n) == text
}

func formatCount(n int) string { return strconv.Itoa(n) }

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

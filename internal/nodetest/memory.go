package nodetest

import (
	"fmt"
	"os"
	"strings"
)

// Resident is how many bytes of memory a process has now, and the most that it
// has had. Linux alone tells.
func Resident(pid int) (now, most int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		name, size, _ := strings.Cut(line, ":")
		switch name {
		case "VmRSS":
			_, err = fmt.Sscan(size, &now)
		case "VmHWM":
			_, err = fmt.Sscan(size, &most)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", line, err)
		}
	}
	return now << 10, most << 10, nil
}

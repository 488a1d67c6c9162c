package extract

import (
	"context"
	"os/exec"
	"strings"

	"github.com/tidemarkdb/tidemark/fault"
)

// ofSource is what go list says of a package whose source is at hand: of the
// Go module itself, of one in its workspace, or of one that a folder replaces.
const ofSource = `{{with .Module}}{{if or .Main (and .Replace (not .Replace.Version))}}{{$.Dir}}{{end}}{{end}}`

// Imported returns the folders of the packages that modules in folders are built
// from, their own among them, as far as somebody may edit these: what is
// downloaded is not there.
func Imported(ctx context.Context, dirs ...string) ([]string, error) {
	var folders []string
	for _, dir := range dirs {
		list := exec.CommandContext(ctx, "go", "list", "-e", "-deps", "-f", ofSource, ".")
		list.Dir = dir
		output, err := list.Output()
		if err != nil {
			return nil, fault.New(fault.Unavailable, "the go command cannot list what %s imports: %w", dir, err)
		}
		for folder := range strings.Lines(string(output)) {
			folders = append(folders, strings.TrimSuffix(folder, "\n"))
		}
	}
	return folders, nil
}

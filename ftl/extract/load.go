package extract

import (
	"context"
	"errors"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"

	"github.com/tidemarkdb/tidemark/fault"
)

// source is a module's Go packages, read and type-checked.
type source struct {
	// dir is the module's folder, and root that of the Go module it is in.
	dir, root string
	config    *Config
	// declaring is the package of the module's folder, and others are those of
	// the folders below.
	declaring *packages.Package
	others    []*packages.Package
	owners    *owners
}

// loadMode reads the named packages from source and what they import from
// export data: without NeedDeps nothing else is parsed.
const loadMode = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
	packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedModule

// load reads the modules in folders, those of one Go module with one call of
// the go command.
func load(ctx context.Context, dirs []string) ([]*source, error) {
	var sources []*source
	byRoot := map[string][]*source{}
	var roots []string
	shared := &owners{}
	for _, dir := range dirs {
		absolute, err := resolve(dir)
		if err != nil {
			return nil, err
		}
		config, err := ReadConfig(absolute)
		if err != nil {
			return nil, err
		}
		root, err := GoModuleOf(absolute)
		if err != nil {
			return nil, err
		}
		if byRoot[root] == nil {
			roots = append(roots, root)
		}
		s := &source{dir: absolute, root: root, config: config, owners: shared}
		sources = append(sources, s)
		byRoot[root] = append(byRoot[root], s)
	}
	for _, root := range roots {
		if err := loadGoModule(ctx, root, byRoot[root]); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

// loadGoModule reads the modules that lie in one Go module.
func loadGoModule(ctx context.Context, root string, sources []*source) error {
	var patterns []string
	for _, s := range sources {
		relative, err := filepath.Rel(root, s.dir)
		if err != nil {
			return err
		}
		patterns = append(patterns, "./"+filepath.ToSlash(filepath.Join(relative, "...")))
	}
	loaded, err := packages.Load(&packages.Config{
		Context: ctx,
		Mode:    loadMode,
		Dir:     root,
		// Positions in export data lead to the files of other modules.
		BuildFlags: []string{"-trimpath=false"},
	}, patterns...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, s := range sources {
		s.take(loaded)
		if s.declaring == nil {
			return s.notLoaded(ctx, err)
		}
	}
	return nil
}

// notLoaded says why the package of a module's folder was not loaded. Loading
// leaves out what the go command says where it lists nothing at all, as of a
// go.mod that needs go mod tidy, so the go command is asked once more.
func (s *source) notLoaded(ctx context.Context, loading error) error {
	list := exec.CommandContext(ctx, "go", "list", ".")
	list.Dir = s.dir
	output, err := list.CombinedOutput()
	said := strings.TrimSpace(string(output))
	var failed *exec.ExitError
	switch {
	case err == nil && loading == nil, strings.Contains(said, "no Go files in"), strings.Contains(said, "build constraints exclude all Go files"):
		return s.noFiles()
	case errors.As(err, &failed):
		return fault.New(fault.InvalidClause, "the go command cannot load %s:\n%s", s.dir, said)
	}
	return fault.New(fault.Unavailable, "the go command cannot load %s: %w", s.dir, errors.Join(loading, err))
}

// noFiles says that the module's folder has no Go files, and names one that the
// go command leaves out.
func (s *source) noFiles() error {
	files, err := filepath.Glob(filepath.Join(s.dir, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			return fault.New(fault.NotFound, "the module's folder %s holds no Go files of its own for this system: %s is left out by its build constraints, or imports C where there is no C compiler", s.dir, filepath.Base(file))
		}
	}
	return fault.New(fault.NotFound, "the module's folder %s holds no Go files of its own; its declarations stand there", s.dir)
}

// take picks the module's packages from what was loaded.
func (s *source) take(loaded []*packages.Package) {
	for _, p := range loaded {
		switch dir := dirOf(p); {
		case dir == s.dir:
			s.declaring = p
		case strings.HasPrefix(dir, s.dir+string(filepath.Separator)) && s.owns(p.GoFiles[0]):
			s.others = append(s.others, p)
		}
	}
}

// owns reports whether a file belongs to the module, and not to one below it.
func (s *source) owns(file string) bool {
	owner := s.owners.ownerOf(file)
	return owner != nil && owner.path == s.config.path
}

// dirOf is the folder of a package, "" for one without Go files.
func dirOf(p *packages.Package) string {
	if len(p.GoFiles) == 0 {
		return ""
	}
	return filepath.Dir(p.GoFiles[0])
}

// resolve returns the absolute path without symbolic links, as the go command
// names folders.
func resolve(dir string) (string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(absolute)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.NotFound, "there is no folder %s", dir)
	}
	return resolved, err
}

// GoModuleOf returns the folder of the go.mod that a folder belongs to, or
// fault.NotFound.
func GoModuleOf(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fault.New(fault.NotFound, "%s is in no Go module; run go mod init there, and go get github.com/tidemarkdb/tidemark", dir)
		}
	}
}

// goErrors are what the go command and the compiler say of the packages and of
// what they import.
func (s *source) goErrors() Diagnostics {
	var found Diagnostics
	packages.Visit(append([]*packages.Package{s.declaring}, s.others...), nil, func(p *packages.Package) {
		for _, err := range p.Errors {
			if strings.HasPrefix(err.Msg, "# ") {
				continue // The compiler's whole output; each line of it is an error here.
			}
			at := parsePosition(err.Pos)
			if at.Filename != "" && !filepath.IsAbs(at.Filename) {
				at.Filename = filepath.Join(s.root, at.Filename)
			}
			found = append(found, Diagnostic{Position: at, Message: tidied(err.Msg)})
		}
	})
	// Where the go command says why an import failed, the compiler need not say
	// that it did.
	return slices.DeleteFunc(found, func(d Diagnostic) bool {
		return strings.HasPrefix(d.Message, "could not import ") && slices.ContainsFunc(found, func(other Diagnostic) bool {
			return other.Position == d.Position && other.Message != d.Message
		})
	})
}

// tidied is what the go command says of an import, with go mod tidy where that
// mends it: the go get that it proposes adds one package of several.
func tidied(message string) string {
	if missing, _, cut := strings.Cut(message, "; to add"); cut {
		return missing + "; run go mod tidy"
	}
	return message
}

// written is where something stands in the source as it was written. In place of
// a file that imports C the go command gives what cgo made of it, which has no
// name of a Go file and says in line comments what stood where.
func written(files *token.FileSet, at token.Pos) token.Position {
	position := files.PositionFor(at, false)
	if filepath.Ext(position.Filename) != ".go" {
		position = files.PositionFor(at, true)
	}
	return position
}

// parsePosition reads file:line:column, of which the last two may be missing.
func parsePosition(text string) token.Position {
	if text == "-" || text == "" {
		return token.Position{}
	}
	at := token.Position{Filename: text}
	var numbers []int
	for len(numbers) < 2 {
		i := strings.LastIndexByte(at.Filename, ':')
		if i < 0 {
			break
		}
		n, err := strconv.Atoi(at.Filename[i+1:])
		if err != nil {
			break
		}
		numbers = append([]int{n}, numbers...)
		at.Filename = at.Filename[:i]
	}
	if len(numbers) > 0 {
		at.Line = numbers[0]
	}
	if len(numbers) > 1 {
		at.Column = numbers[1]
	}
	return at
}

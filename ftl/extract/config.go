package extract

import (
	"errors"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
	"golang.org/x/tools/go/analysis"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// ConfigFile is the file that makes a folder a module.
const ConfigFile = "ftl.toml"

// Config is what ftl.toml says.
type Config struct {
	// Module is the module's name.
	Module string `toml:"module"`

	path string
	// line is where it names the module.
	line int
}

// ReadConfig reads the ftl.toml of a folder. The error names the file and what
// is wrong in it: fault.NotFound where there is none, otherwise
// fault.InvalidClause.
func ReadConfig(dir string) (*Config, error) {
	path := filepath.Join(dir, ConfigFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noModule(dir)
	}
	if err != nil {
		return nil, err
	}
	c := &Config{path: path}
	meta, err := toml.Decode(string(text), c)
	if err != nil {
		var malformed toml.ParseError
		if errors.As(err, &malformed) {
			return nil, fault.New(fault.InvalidClause, "%s:%d: %s", path, malformed.Position.Line, malformed.Message)
		}
		return nil, fault.New(fault.InvalidClause, "%s: %w", path, err)
	}
	for _, key := range meta.Undecoded() {
		return nil, fault.New(fault.InvalidClause, "%s: %s is no setting; the one there is names the module: module = \"payments\"", path, key)
	}
	c.line = lineOf("module", string(text))
	if c.Module == "" {
		return nil, fault.New(fault.InvalidClause, "%s:%d: it names no module; write module = \"payments\"", path, c.line)
	}
	if err := schema.CheckModuleName(c.Module); err != nil {
		return nil, fault.New(fault.InvalidClause, "%s:%d: %s", path, c.line, fault.Of(err).Message)
	}
	return c, nil
}

// lineOf is the line of a key in a file that was read, the first where it has
// none.
func lineOf(key, text string) int {
	for n, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), key) {
			return n + 1
		}
	}
	return 1
}

// position is where the module is named.
func (c *Config) position() token.Position {
	return token.Position{Filename: c.path, Line: c.line, Column: 1}
}

func noModule(dir string) error {
	return fault.New(fault.NotFound, "there is no module in %s; a module's folder has an ftl.toml with module = \"payments\"", dir)
}

// owners finds the module that a Go file belongs to: the nearest folder above
// it with an ftl.toml. It is safe for concurrent use.
type owners struct {
	mu sync.Mutex
	// byDir holds what was found, by folder; nil for no module. It is protected
	// by mu.
	byDir map[string]*Config
}

// ownerOf returns the module's settings, or nil for a file of no module. A
// module whose settings cannot be read owns nothing.
func (o *owners) ownerOf(file string) *Config {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byDir == nil {
		o.byDir = map[string]*Config{}
	}
	return o.ofDir(filepath.Dir(file))
}

func (o *owners) ofDir(dir string) *Config {
	if config, known := o.byDir[dir]; known {
		return config
	}
	config, err := ReadConfig(dir)
	if parent := filepath.Dir(dir); errors.Is(err, fault.NotFound) && parent != dir {
		config = o.ofDir(parent)
	}
	o.byDir[dir] = config
	return config
}

// findBelow returns the folders of modules at or below dir.
func findBelow(dir string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		name := entry.Name()
		if path != dir && (name == "testdata" || name == "vendor" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, ConfigFile)); err == nil {
			found = append(found, path)
			return filepath.SkipDir
		}
		return nil
	})
	return found, err
}

func unique(texts []string) []string {
	var kept []string
	for _, text := range texts {
		if !slices.Contains(kept, text) {
			kept = append(kept, text)
		}
	}
	return kept
}

// located is the module that a package belongs to.
type located struct {
	config *Config
	owners *owners
}

// configAnalyzer finds the module that a package belongs to.
var configAnalyzer = &analysis.Analyzer{
	Name:       "ftlconfig",
	Doc:        "find the ftl.toml of a package",
	Run:        locate,
	ResultType: reflect.TypeFor[*located](),
}

func locate(pass *analysis.Pass) (any, error) {
	l := &located{owners: &owners{}}
	for _, file := range pass.Files {
		// One that cgo has made for the whole package is of no module.
		if l.config = l.owners.ownerOf(written(pass.Fset, file.Package).Filename); l.config != nil {
			return l, nil
		}
	}
	return nil, noModule(pass.Pkg.Path())
}

func configOf(pass *analysis.Pass) *located { return pass.ResultOf[configAnalyzer].(*located) }

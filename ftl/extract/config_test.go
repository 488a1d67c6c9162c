package extract

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/fault"
)

func TestAConfigSaysWhatIsWrongWithIt(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"module = \"payments\"", ""},
		{"", `ftl.toml:1: it names no module; write module = "payments"`},
		{"module = \"Pay-ins\"", `ftl.toml:1: "Pay-ins" is no name of a module; write payIns`},
		{"module = \"ftl\"", `ftl.toml:1: no module can be called ftl: the SDK's own types stand under that name; give it another name`},
		{"# Ours.\n\nmodule = \"topic\"", `ftl.toml:3: no module can be called topic: the tables of what is deployed begin with that name and an underscore, as its topics would; give it another name`},
		{"module = \"m\"\nname = 1", `name is no setting; the one there is names the module: module = "payments"`},
		{"module = \"m\"\n\nmodule = \"n\"", "Key 'module' has already been defined."},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, ConfigFile), c.text)
		config, err := ReadConfig(dir)
		switch {
		case c.want == "" && (err != nil || config.Module != "payments"):
			t.Errorf("%s gives %v, %v", c.text, config, err)
		case c.want != "" && (!errors.Is(err, fault.InvalidClause) || !strings.HasSuffix(err.Error(), c.want)):
			t.Errorf("%s gives %v, want %s", c.text, err, c.want)
		}
	}
}

func TestModulesAreFoundInAndBelowAFolder(t *testing.T) {
	root, err := resolve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"a", "a/inside", "b/c", "b/.hidden", "b/_left", "b/testdata", "b/vendor"} {
		write(t, filepath.Join(root, dir, ConfigFile), `module = "m"`)
	}
	found, err := Find(filepath.Join(root, "a"), root)
	if want := []string{filepath.Join(root, "a"), filepath.Join(root, "b/c")}; err != nil || !slices.Equal(found, want) {
		t.Errorf("found %v, %v, want %v", found, err, want)
	}
	for _, dir := range []string{"b/c/d", "nowhere"} {
		if dir != "nowhere" {
			write(t, filepath.Join(root, dir, "file.go"), "package d")
		}
		if found, err := Find(filepath.Join(root, dir)); !errors.Is(err, fault.NotFound) {
			t.Errorf("in %s are found %v, %v", dir, found, err)
		}
	}
}

func TestAFolderThatCannotBeExtractedSaysWhy(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, ConfigFile), `module = "m"`)
	root := goModule(t)
	write(t, filepath.Join(root, "empty", ConfigFile), `module = "m"`)
	for dir, want := range map[string]string{
		outside:                       "is in no Go module; run go mod init there, and go get github.com/tidemarkdb/tidemark",
		filepath.Join(root, "empty"):  "holds no Go files of its own; its declarations stand there",
		filepath.Join(root, "absent"): "there is no folder " + filepath.Join(root, "absent"),
		root:                          `a module's folder has an ftl.toml with module = "payments"`,
	} {
		if _, err := Extract(t.Context(), dir); !errors.Is(err, fault.NotFound) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s gives %v, want %s", dir, err, want)
		}
	}
}

func TestAModuleAloneIsExtractedWithWhatItSubscribesTo(t *testing.T) {
	root := goModule(t)
	unpack(t, "testdata/documentation.txtar", filepath.Join(root, "documentation"))
	modules, err := Extract(t.Context(), filepath.Join(root, "documentation/receipts"))
	if err != nil {
		t.Fatal(err)
	}
	m := modules[0]
	if len(modules) != 1 || m.Schema.Subscription("printing").Topic.String() != "payments.payins" {
		t.Errorf("extracted %s", SchemaOf(modules))
	}
	if m.Package != "receipts" || m.ImportPath != "modules/documentation/receipts" || m.Dir != filepath.Join(root, "documentation/receipts") || m.Functions["print"] != "Print" {
		t.Errorf("extracted %+v", m)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

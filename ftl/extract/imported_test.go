package extract

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWhatAModuleImportsIsWatchedWhereItCanBeEdited(t *testing.T) {
	root := goModule(t)
	dir := filepath.Join(root, "shop")
	write(t, filepath.Join(root, "money/money.go"), "package money\n\ntype Cents int\n")
	write(t, filepath.Join(root, "unused/unused.go"), "package unused\n")
	write(t, filepath.Join(dir, "shop.go"), "package shop\n\nimport (\n\t_ \"github.com/google/uuid\"\n\t_ \"github.com/tidemarkdb/tidemark/fault\"\n\t_ \"modules/money\"\n)\n")
	folders, err := Imported(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{dir, filepath.Join(root, "money"), filepath.Join(repository, "fault")} {
		if !slices.Contains(folders, want) {
			t.Errorf("%s is not among %s", want, folders)
		}
	}
	for _, folder := range folders {
		if strings.Contains(folder, "uuid") || strings.HasSuffix(folder, "unused") || strings.HasSuffix(folder, "fmt") {
			t.Errorf("%s is among them", folder)
		}
	}
}

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWhatIsWatchedIsTheSourceOfModulesAndWhatTheyAreBuiltWith(t *testing.T) {
	root := t.TempDir()
	module := filepath.Join(root, "payments")
	for _, file := range []string{"go.mod", "payments/ftl.toml", "payments/below/types.go", "beside/other.go", "imported/money.go"} {
		saveFile(t, filepath.Join(root, file))
	}
	watched, err := watch([]string{module})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.stop()
	watched.imports([]string{filepath.Join(root, "imported"), filepath.Join(root, "gone")})
	for _, file := range []string{"imported/money.go", "go.mod", "go.sum", "payments/payments.go", "payments/below/types.go", "payments/new/new.go"} {
		saveFile(t, filepath.Join(root, file))
		select {
		case <-watched.changed:
		case <-time.After(10 * time.Second):
			t.Errorf("%s is saved, and nobody is told", file)
		}
	}
	for _, file := range []string{"payments/.ftl/main.go", "payments/payments_test.go", "payments/notes.txt", "beside/other.go", "root.go", "store/below/1.go"} {
		saveFile(t, filepath.Join(root, file))
		select {
		case <-watched.changed:
			t.Errorf("%s is saved, and it is told", file)
		case <-time.After(3 * settleTime):
		}
	}
}

func saveFile(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("package p\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tidemarkdb/tidemark/ftl/extract"
)

// settleTime is how long files must have been left alone before they are taken
// to be saved: editors write a file in several steps.
const settleTime = 100 * time.Millisecond

// watching watches what modules are built from.
type watching struct {
	// changed holds a token when something was saved, one for what is saved
	// together.
	changed chan struct{}
	watcher *fsnotify.Watcher
	// modules are the modules' folders.
	modules []string

	mu sync.Mutex
	// imported are the folders of packages that the modules import; protected
	// by mu.
	imported map[string]bool
}

// watch begins to watch modules: their source files, and the go.mod and go.sum
// that they are built with.
func watch(dirs []string) (*watching, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if err := watchModule(watcher, dir); err != nil {
			_ = watcher.Close()
			return nil, err
		}
	}
	w := &watching{changed: make(chan struct{}, 1), watcher: watcher, modules: dirs, imported: map[string]bool{}}
	go w.run()
	return w, nil
}

func (w *watching) stop() { _ = w.watcher.Close() }

// imports has the folders of packages watched that the modules import. One that
// cannot be watched is none.
func (w *watching) imports(folders []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, folder := range folders {
		if !w.imported[folder] && w.watcher.Add(folder) == nil {
			w.imported[folder] = true
		}
	}
}

func (w *watching) run() {
	var settled <-chan time.Time
	for {
		select {
		case event, open := <-w.watcher.Events:
			if !open {
				return
			}
			if w.concerns(event) {
				settled = time.After(settleTime)
			}
		case _, open := <-w.watcher.Errors:
			// Events were lost: what changed is not known.
			if !open {
				return
			}
			settled = time.After(settleTime)
		case <-settled:
			settled = nil
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
}

// concerns reports whether an event is of what the modules are built from.
func (w *watching) concerns(event fsnotify.Event) bool {
	inModule := isBelow(w.modules, event.Name)
	if inModule && event.Has(fsnotify.Create) && isFolder(event.Name) {
		// What is in it may have come before it was watched.
		_ = watchBelow(w.watcher, event.Name)
		return true
	}
	if event.Has(fsnotify.Chmod) {
		return false
	}
	return (inModule || w.isImported(event.Name)) && isSource(event.Name) || isRequirement(event.Name)
}

func (w *watching) isImported(file string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.imported[filepath.Dir(file)]
}

// watchModule watches a module's folder and that of its go.mod.
func watchModule(watcher *fsnotify.Watcher, dir string) error {
	if root, err := extract.GoModuleOf(dir); err == nil {
		if err := watcher.Add(root); err != nil {
			return err
		}
	}
	return watchBelow(watcher, dir)
}

// watchBelow watches a folder and those in it, but for hidden ones, which hold
// what is generated.
func watchBelow(watcher *fsnotify.Watcher, dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		case path != dir && isHidden(entry.Name()):
			return filepath.SkipDir
		}
		return watcher.Add(path)
	})
}

// isBelow reports whether a path is one of some folders or lies in one.
func isBelow(dirs []string, path string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		relative, err := filepath.Rel(dir, path)
		return err == nil && filepath.IsLocal(relative)
	})
}

// isFolder reports whether a path is a folder of source.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir() && !isHidden(filepath.Base(path))
}

func isHidden(name string) bool { return strings.HasPrefix(name, ".") }

// isSource reports whether a file is part of a module.
func isSource(path string) bool {
	name := filepath.Base(path)
	return !isHidden(name) && (strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") || name == "ftl.toml")
}

// isRequirement reports whether a file says what a Go module requires.
func isRequirement(path string) bool {
	name := filepath.Base(path)
	return name == "go.mod" || name == "go.sum"
}

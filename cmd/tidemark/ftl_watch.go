package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tidemarkdb/tidemark/ftl/extract"
)

// settleTime is how long files must have been left alone before they are taken
// to be saved: editors write a file in several steps.
const settleTime = 100 * time.Millisecond

// watch tells when a source file of modules was saved, or the go.mod or go.sum
// that they are built with, once for what is saved together.
func watch(dirs []string) (changed <-chan struct{}, stop func(), err error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, err
	}
	for _, dir := range dirs {
		if err := watchModule(watcher, dir); err != nil {
			_ = watcher.Close()
			return nil, nil, err
		}
	}
	saved := make(chan struct{}, 1)
	go func() {
		var settled <-chan time.Time
		for {
			select {
			case event, open := <-watcher.Events:
				if !open {
					return
				}
				inModule := isBelow(dirs, event.Name)
				isNew := inModule && event.Has(fsnotify.Create) && isFolder(event.Name)
				if isNew {
					_ = watchBelow(watcher, event.Name)
				}
				// What is in a new folder may have come before it was watched.
				if isNew || (inModule && isSource(event.Name) || isRequirement(event.Name)) && !event.Has(fsnotify.Chmod) {
					settled = time.After(settleTime)
				}
			case _, open := <-watcher.Errors:
				// Events were lost: what changed is not known.
				if !open {
					return
				}
				settled = time.After(settleTime)
			case <-settled:
				settled = nil
				select {
				case saved <- struct{}{}:
				default:
				}
			}
		}
	}()
	return saved, func() { _ = watcher.Close() }, nil
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

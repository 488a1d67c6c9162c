package main

import (
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settleTime is how long files must have been left alone before they are taken
// to be saved: editors write a file in several steps.
const settleTime = 100 * time.Millisecond

// watch tells when a source file of modules was saved, once for what is saved
// together.
func watch(dirs []string) (changed <-chan struct{}, stop func(), err error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, err
	}
	for _, dir := range dirs {
		if err := watchBelow(watcher, dir); err != nil {
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
				if event.Has(fsnotify.Create) {
					// A folder that is new, or nothing of the kind.
					_ = watchBelow(watcher, event.Name)
				}
				if isSource(event.Name) && !event.Has(fsnotify.Chmod) {
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

// watchBelow watches a folder and those in it, but for hidden ones, which hold
// what is generated.
func watchBelow(watcher *fsnotify.Watcher, dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		case path != dir && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		}
		return watcher.Add(path)
	})
}

// isSource reports whether a file is part of a module.
func isSource(path string) bool {
	name := filepath.Base(path)
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") || name == "ftl.toml" || name == "go.mod")
}

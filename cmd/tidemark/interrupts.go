package main

import "sync"

// interrupts are what a command does at Ctrl-C instead of ending: a shell gives
// up what runs. The zero value takes none.
type interrupts struct {
	mu sync.Mutex
	// The following are protected by mu.
	taken bool
	calls map[int]func()
	last  int
}

// take keeps Ctrl-C from ending the command from now on.
func (i *interrupts) take() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.taken = true
}

// on calls something at every Ctrl-C, until stop.
func (i *interrupts) on(call func()) (stop func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last++
	id := i.last
	if i.calls == nil {
		i.calls = map[int]func(){}
	}
	i.calls[id] = call
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.calls, id)
	}
}

// happened reports whether the command took the Ctrl-C.
func (i *interrupts) happened() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, call := range i.calls {
		call()
	}
	return i.taken || len(i.calls) > 0
}

package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// certificates is the certificate that the node shows, from files that may be
// read again.
type certificates struct {
	certFile, keyFile string
	current           atomic.Pointer[tls.Certificate]
}

// load reads the files. Where they cannot be used, the certificate stays the
// one that was there.
func (c *certificates) load() error {
	certificate, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("the TLS certificate cannot be used: %w", err)
	}
	c.current.Store(&certificate)
	return nil
}

func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// reloadOnHangup reads the certificate again at every SIGHUP, until stop.
// Connections that are open keep theirs. Without TLS a SIGHUP changes nothing.
func reloadOnHangup(c *certificates, log *slog.Logger) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-hangups:
			}
			if c == nil {
				log.Info("there is no TLS certificate to read again")
			} else if err := c.load(); err != nil {
				log.Error("the TLS certificate stays the old one", slog.Any("error", err))
			} else {
				log.Info("the TLS certificate was read again")
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(done)
	}
}

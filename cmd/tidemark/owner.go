package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// rootPasswordVariable is the environment variable that holds root's password.
// There is no flag of it: whoever is on the machine sees the flags of others.
const rootPasswordVariable = "TIDEMARK_ROOT_PASSWORD"

// isLocal reports whether the node listens on this machine alone.
func (c *serveCommand) isLocal() (bool, error) {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return false, fmt.Errorf("--listen takes an address and a port, as 127.0.0.1:7420: %w", err)
	}
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback(), nil
}

// rootPassword is the password that the owner root is to have, "" for none that
// was given.
func (c *serveCommand) rootPassword() (string, error) {
	if c.RootPasswordFile == "" {
		return os.Getenv(rootPasswordVariable), nil
	}
	content, err := os.ReadFile(c.RootPasswordFile)
	if err != nil {
		return "", fmt.Errorf("--root-password-file cannot be read: %w", err)
	}
	password := strings.TrimRight(string(content), "\r\n")
	if password == "" {
		return "", fmt.Errorf("--root-password-file %s is empty; it holds the password of the owner root", c.RootPasswordFile)
	}
	return password, nil
}

// checkOwner sets root's password where one is given, and refuses to let others
// in where nobody has to say who they are.
func (c *serveCommand) checkOwner(ctx context.Context, s *store.Store, log *slog.Logger) error {
	local, err := c.isLocal()
	if err != nil {
		return err
	}
	password, err := c.rootPassword()
	if err != nil {
		return err
	}
	if password != "" {
		if err := session.SetRootPassword(ctx, s, password); err != nil {
			return fmt.Errorf("the password of root cannot be set: %w", err)
		}
	}
	users, err := s.Users(ctx)
	switch {
	case err != nil:
		return err
	case !users.HasOwner() && !local && !c.AllowAnonymous:
		return fmt.Errorf("the store has no owner, so whoever reaches %s could do everything: give it one with --root-password-file or %s, listen on 127.0.0.1, or say --allow-anonymous if that is meant", c.Listen, rootPasswordVariable)
	case !users.HasOwner():
		log.Warn("THE STORE HAS NO OWNER: WHOEVER REACHES THE PORT MAY DO EVERYTHING; "+
			"DEFINE USER … ON STORE … ROLE owner, or --root-password-file, gives it one", slog.String("listen", c.Listen))
	case !local && c.TLSCert == "":
		log.Warn("passwords and messages travel in the clear; --tls-cert encrypts them, if nothing before this node does", slog.String("listen", c.Listen))
	}
	return nil
}

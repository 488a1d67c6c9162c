package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// noSettings are flags of serve that are no settings of the node.
var noSettings = []string{"help", "config", "print-config"}

// environmentPrefix begins the environment variable of every setting.
const environmentPrefix = "TIDEMARK_"

// nameEnvironment gives every setting of serve its environment variable.
func nameEnvironment(k *kong.Kong) error {
	for _, node := range k.Model.Children {
		if node.Name != "serve" {
			continue
		}
		for _, flag := range node.Flags {
			if slices.Contains(noSettings[1:], flag.Name) {
				continue
			}
			name := environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
			flag.Envs = []string{name}
			flag.Tag.Envs = flag.Envs
		}
	}
	return nil
}

// settingsFile is a file of settings; it resolves flags that neither the command
// line nor the environment gave.
type settingsFile map[string]any

// loadSettings reads a file of settings.
func loadSettings(r io.Reader) (kong.Resolver, error) {
	settings := settingsFile{}
	if err := yaml.NewDecoder(r).Decode(&settings); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the settings do not parse: %w", err)
	}
	return settings, nil
}

// Validate refuses settings that there are not: a misspelt one would be lost.
func (f settingsFile) Validate(app *kong.Application) error {
	known := map[string]bool{}
	for _, node := range app.Children {
		if node.Name != "serve" {
			continue
		}
		for _, flag := range node.Flags {
			known[flag.Name] = !slices.Contains(noSettings, flag.Name)
		}
	}
	for name := range f {
		if !known[name] {
			return fmt.Errorf("the settings have no %q; tidemark serve --print-config shows those that there are", name)
		}
	}
	return nil
}

// Resolve is the value that the file gives a flag, nil for none.
func (f settingsFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	v, given := f[flag.Name]
	if !given || v == nil {
		return nil, nil
	}
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	switch x := v.(type) {
	case []any:
		parts := make([]string, len(x))
		for i, part := range x {
			parts[i] = fmt.Sprint(part)
		}
		return strings.Join(parts, ","), nil
	case string:
		if x == "" {
			return nil, nil // as where it is not there
		}
		return x, nil
	case map[string]any:
		return nil, fmt.Errorf("takes a value, not fields")
	}
	return fmt.Sprint(v), nil
}

// printSettings prints the settings of a command as they stand, as a file of
// settings with its documentation.
func printSettings(out io.Writer, node *kong.Node) error {
	for _, flag := range node.Flags {
		if slices.Contains(noSettings, flag.Name) {
			continue
		}
		for _, line := range wrap(flag.Help, 76) {
			fmt.Fprintf(out, "# %s\n", line)
		}
		otherwise := ""
		if flag.HasDefault {
			otherwise = "Default: " + flag.Default + ". "
		}
		fmt.Fprintf(out, "# %sFlag --%s, environment %s.\n", otherwise, flag.Name, strings.Join(flag.Envs, ", "))
		value, secret := shown(flag)
		if secret {
			fmt.Fprintln(out, "# Its password is left out here; PGPASSWORD or a password file gives it.")
		}
		line, err := yaml.Marshal(map[string]any{flag.Name: value})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n", line)
	}
	return nil
}

// shown is a setting's value as a file has it. A secret that it holds is left out.
func shown(flag *kong.Flag) (value any, secret bool) {
	v := flag.Target.Interface()
	switch x := v.(type) {
	case string:
		if flag.Name == "postgres" {
			without := withoutPassword(x)
			return without, without != x
		}
		return x, false
	case fmt.Stringer:
		return x.String(), false
	}
	switch flag.Target.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Slice:
		return v, false
	}
	return fmt.Sprint(v), false
}

// passwordSetting is a password in libpq's key=value form, with what sets it apart
// from the settings after it.
var passwordSetting = regexp.MustCompile(`(?i)\bpassword\s*=\s*('(?:[^'\\]|\\.)*'|\S+)\s*`)

// withoutPassword is a PostgreSQL URL, or key=value form, without its password.
func withoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return strings.TrimSpace(passwordSetting.ReplaceAllString(address, ""))
	}
	if _, given := u.User.Password(); given {
		u.User = url.User(u.User.Username())
	}
	if query := u.Query(); query.Has("password") {
		query.Del("password")
		u.RawQuery = query.Encode()
	}
	return u.String()
}

// wrap breaks text into lines of at most so many bytes.
func wrap(text string, most int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > most {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

package server

import (
	"reflect"
	"testing"

	"github.com/alecthomas/kong"
)

func TestTheSettingsDefaultsAreTheServers(t *testing.T) {
	var flags struct {
		Limits Limits `embed:""`
	}
	parser, err := kong.New(&flags)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(nil); err != nil {
		t.Fatal(err)
	}
	if flags.Limits != DefaultLimits() {
		t.Fatalf("the flags' defaults\n%+v\nand the server's\n%+v", flags.Limits, DefaultLimits())
	}
	if (Limits{}).withDefaults() != DefaultLimits() {
		t.Fatalf("a zero field is not its default: %+v", (Limits{}).withDefaults())
	}
	fields := reflect.TypeFor[Limits]()
	for i := range fields.NumField() {
		if help := fields.Field(i).Tag.Get("help"); len(help) < 40 {
			t.Errorf("%s has no reason: %q", fields.Field(i).Name, help)
		}
	}
}

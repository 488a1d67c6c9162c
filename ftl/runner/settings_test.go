package runner

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/tidemarkdb/tidemark/fault"
)

func TestAFlagGoesBeforeItsVariable(t *testing.T) {
	t.Setenv("TIDEMARK_NODE", "wss://a:1,b:2")
	t.Setenv("TIDEMARK_DATABASE", "of the variable")
	t.Setenv("TIDEMARK_TOKEN", "secret")
	s, err := readSettings("shop", []string{"-database", "of the flag"})
	if err != nil || s.database != "of the flag" || s.header().Get("Authorization") != "Bearer secret" {
		t.Errorf("read %+v, %v", s, err)
	}
	if want := []string{"wss://a:1", "wss://b:2"}; !slices.Equal(s.urls(), want) {
		t.Errorf("the nodes are %v, want %v", s.urls(), want)
	}
	if _, err := readSettings("shop", []string{"-credit", "0"}); !errors.Is(err, fault.InvalidClause) {
		t.Errorf("no credit is taken: %v", err)
	}
}

func TestTheIngressTakesAListenerOfTheParentProcess(t *testing.T) {
	parent, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = parent.Close() }()
	file, err := parent.File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	// listen closes what it is told of, as a process does with what it inherited.
	descriptor, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := listen("fd:" + strconv.Itoa(descriptor))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inherited.Close() }()
	if inherited.Addr().String() != parent.Addr().String() {
		t.Errorf("it listens on %s, want %s", inherited.Addr(), parent.Addr())
	}
	if _, err := listen("fd:three"); !errors.Is(err, fault.InvalidClause) {
		t.Errorf("fd:three is listened on: %v", err)
	}
}

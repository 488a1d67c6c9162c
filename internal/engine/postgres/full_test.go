package postgres_test

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

// smallDisk mounts a file system of 8 MiB that PostgreSQL may write to.
func smallDisk(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "tidemark-small-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(folder) }) // It is empty once unmounted.
	settings := "size=8m,mode=700"
	if account, err := user.Lookup("postgres"); err == nil {
		settings += ",uid=" + account.Uid
	}
	output, err := exec.Command("mount", "-t", "tmpfs", "-o", settings, "tmpfs", folder).CombinedOutput()
	if err != nil {
		t.Skipf("a disk that fills up takes the right to mount one: %s", output)
	}
	t.Cleanup(func() {
		if output, err := exec.Command("umount", folder).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", output)
		}
	})
	return folder
}

// countRows counts what the newest state holds, and says which that is.
func countRows(t *testing.T, s engine.Space) (engine.Sequence, int) {
	t.Helper()
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Release()
	rows := 0
	it := snapshot.Scan(ctx, engine.Range{}, false, 0)
	for it.Next() {
		rows++
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return snapshot.Sequence(), rows
}

func TestAFullDiskIsUnavailableAndLeavesNothingHalf(t *testing.T) {
	folder := smallDisk(t)
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	e := open(t, postgres.Options{URL: cluster.URL(), Schema: schema, Patience: shortPatience})
	s := space(t, e, 1)
	set(t, s, "a", "before")
	cluster.SQL(t, "CREATE TABLESPACE small LOCATION '"+folder+"'")
	cluster.SQL(t, "ALTER TABLE "+schema+".entries SET TABLESPACE small")
	defer func() {
		cluster.SQL(t, "DROP TABLE "+schema+".entries CASCADE")
		cluster.SQL(t, "DROP TABLESPACE small")
	}()
	value := []byte(strings.Repeat("v", 1800)) // Too short to be moved elsewhere.
	var made engine.Sequence = 1
	var err error
	for err == nil && made < 100 {
		_, err = s.Commit(ctx, func(c engine.Commit) error {
			c.Set([]byte("a"), []byte("after"))
			for i := range 1000 {
				c.Set([]byte{byte(made), byte(i >> 8), byte(i)}, value)
			}
			return nil
		})
		if err == nil {
			made++
		}
	}
	if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "No space left on device") {
		t.Fatalf("after %d commits: got %v, want Unavailable that says why", made, err)
	}
	if sequence, rows := countRows(t, s); sequence != made || rows != 1+1000*int(made-1) {
		t.Fatalf("commit %d shows %d rows; %d commits were acknowledged", sequence, rows, made)
	}
	// With room again it goes on.
	cluster.SQL(t, "ALTER TABLE "+schema+".entries SET TABLESPACE pg_default")
	if sequence := set(t, s, "a", "again"); sequence != made+1 {
		t.Fatalf("the next commit is %d, want %d", sequence, made+1)
	}
}

// As an operator sets one for all, who has forgotten what else runs there.
func TestAStatementTimeoutOfTheServersIsUnavailableAndLeavesNothing(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	e := open(t, postgres.Options{
		URL: cluster.URL() + "&options=-c%20statement_timeout%3D100", Schema: schema, Patience: 2 * time.Second, DisableNotify: true,
	})
	s := space(t, e, 1)
	set(t, s, "a", "before")
	cluster.SQL(t, `
		CREATE FUNCTION `+schema+`.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NEW; END';
		CREATE TRIGGER slow BEFORE INSERT ON `+schema+`.entries FOR EACH ROW EXECUTE FUNCTION `+schema+`.slow()`)
	if _, err := s.Commit(ctx, count); !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "statement timeout") {
		t.Errorf("got %v, want Unavailable that says why", err)
	}
	cluster.SQL(t, "DROP TRIGGER slow ON "+schema+".entries")
	if got := get(t, s, "counter"); got != "" {
		t.Errorf("the commit left %q", got)
	}
	if sequence := set(t, s, "a", "after"); sequence != 2 {
		t.Errorf("the next commit is %d, want 2", sequence)
	}
}

package lang

import (
	"strings"
	"testing"
)

func BenchmarkParse(b *testing.B) {
	cases := map[string]string{
		"create": "CREATE events = { kind: 'paid', order: 'o-17' };",
		"read":   "READ FROM events FOR CONSUMER 'billing' LIMIT 100;",
		"ack":    "ACK mail FOR CONSUMER 'mailer' AT 1 DELIVERY 1, 2 DELIVERY 1, 3 DELIVERY 2;",
		"select": "SELECT kind, sum(total) AS total FROM events WHERE total > 10 AND kind != 'x' GROUP BY kind LIMIT 10;",
		"insert": "INSERT INTO events [" + strings.Repeat("{ kind: 'paid', order: 'o-17' }, ", 999) + "{}];",
	}
	for name, source := range cases {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(source)))
			for b.Loop() {
				if _, err := Parse(source); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

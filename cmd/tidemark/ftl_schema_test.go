package main

import (
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

func TestFTLSchemaPrintsWhatParses(t *testing.T) {
	out, errors, status := runTidemark(t, "", "ftl", "schema", "testdata/modules/payments")
	const want = `module payments {
  topic payins payments.Payin

  data Payin {
    amount Int
  }

  verb pay(payments.Payin) {
    +ingress http POST /payment
    +publish payments.payins
  }
}
`
	if status != 0 || out != want {
		t.Errorf("exits with %d and prints %s%s", status, out, errors)
	}
	if _, err := schema.Parse(out); err != nil {
		t.Error(err)
	}
}

func TestFTLCheckPrintsWhatIsWrong(t *testing.T) {
	out, errors, status := runTidemark(t, "", "ftl", "check", "testdata/modules")
	const want = `testdata/modules/broken/broken.go:8:17: sink process is for subscription paymentProcessing, which does not exist; the module declares no subscription
	//ftl:subscribe paymentProcessing
	                ^^^^^^^^^^^^^^^^^
`
	if status != 1 || out != "" || errors != want {
		t.Errorf("exits with %d and prints %s%s", status, out, errors)
	}
	out, errors, status = runTidemark(t, "", "ftl", "check", "testdata/modules/payments")
	if status != 0 || out != "nothing is wrong with payments\n" {
		t.Errorf("exits with %d and prints %s%s", status, out, errors)
	}
	_, errors, status = runTidemark(t, "", "ftl", "check", t.TempDir())
	if status != 1 || !strings.Contains(errors, "there is no module in") {
		t.Errorf("exits with %d and prints %s", status, errors)
	}
}

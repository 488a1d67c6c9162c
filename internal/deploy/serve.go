package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
)

// The paths under ftlwire.Path that are no runner's.
const (
	PathDeploy  = ftlwire.Path + "/deploy"
	PathStatus  = ftlwire.Path + "/status"
	PathOperate = ftlwire.Path + "/operate"
)

// maxRequestBytes bounds a request: a schema and little else.
const maxRequestBytes = schema.MaxTextBytes + 64<<10

// DeployRequest is what PathDeploy takes; the answer is Changes.
type DeployRequest struct {
	Database string `json:"database"`
	// Deployments are the ids of the deployments, by module.
	Deployments map[string]string `json:"deployments"`
	// Schema is the text of the modules.
	Schema string `json:"schema"`
}

// OperateRequest is what PathOperate takes; the answer is an OperateAnswer.
type OperateRequest struct {
	Database     string `json:"database"`
	Subscription string `json:"subscription"`
	// Do is retry, skip or reset, To where a reset moves to.
	Do string `json:"do"`
	To string `json:"to"`
}

// OperateAnswer says how many events in flight were touched.
type OperateAnswer struct {
	Events int `json:"events"`
}

// ErrorAnswer is the answer of every path to a request that failed.
type ErrorAnswer struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// Handler serves runners, and what the command line asks, under ftlwire.Path.
func (h *Host) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+ftlwire.Path, h.serveRunner)
	mux.HandleFunc("POST "+PathDeploy, func(w http.ResponseWriter, r *http.Request) {
		var request DeployRequest
		serve(w, r, &request, func(ctx context.Context) (any, error) {
			return h.Provision(ctx, orDefault(request.Database), request.Deployments, request.Schema)
		})
	})
	mux.HandleFunc("POST "+PathOperate, func(w http.ResponseWriter, r *http.Request) {
		var request OperateRequest
		serve(w, r, &request, func(ctx context.Context) (any, error) {
			events, err := h.Operate(ctx, orDefault(request.Database), request.Subscription, request.Do, request.To)
			return OperateAnswer{events}, err
		})
	})
	mux.HandleFunc("GET "+PathStatus, func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, nil, func(ctx context.Context) (any, error) {
			return h.Status(ctx, orDefault(r.URL.Query().Get("database")))
		})
	})
	return mux
}

func orDefault(database string) string {
	if database == "" {
		return ftlwire.DefaultDatabase
	}
	return database
}

// serve answers a request in JSON.
func serve(w http.ResponseWriter, r *http.Request, request any, work func(context.Context) (any, error)) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	err := decode(w, r, request)
	var answer any
	if err == nil {
		answer, err = work(r.Context())
	}
	if err != nil {
		known := fault.Of(err)
		w.WriteHeader(statusOf(known.Kind))
		answer = ErrorAnswer{string(known.Kind), known.Message}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func decode(w http.ResponseWriter, r *http.Request, request any) error {
	if request == nil {
		return nil
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequestBytes)).Decode(request)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return fault.New(fault.TooLarge, "the request has more than %d bytes", tooLarge.Limit)
	case err != nil:
		return fault.New(fault.Syntax, "the request is no JSON of its kind: %w", err)
	}
	return nil
}

func statusOf(kind fault.Kind) int {
	switch kind {
	case fault.NotFound:
		return http.StatusNotFound
	case fault.TooLarge:
		return http.StatusRequestEntityTooLarge
	case fault.Unavailable, fault.Cancelled:
		return http.StatusServiceUnavailable
	case fault.Internal:
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

// serveRunner serves one runner until it leaves.
func (h *Host) serveRunner(w http.ResponseWriter, r *http.Request) {
	conn, hello, err := ftlwire.Accept(w, r, helloTime)
	if err != nil {
		h.log.Debug("a runner did not say hello", slog.String("remote", r.RemoteAddr), slog.Any("reason", err))
		return
	}
	defer conn.Close("")
	log := h.log.With(slog.String("module", hello.Module), slog.String("deployment", hello.Deployment), slog.String("runner", r.RemoteAddr))
	d, one, err := h.admit(r.Context(), conn, hello, log)
	if err != nil {
		known := fault.Of(err)
		log.Info("a runner is refused", slog.Any("reason", err))
		conn.Send(ftlwire.Frame{Refused: &ftlwire.Refused{
			Kind: string(known.Kind), Message: known.Message, Final: !known.Kind.Retriable() && known.Kind != fault.Internal,
		}})
		return
	}
	log.Info("a runner is connected", slog.Int("credit", hello.Credit))
	h.metrics.runners.WithLabelValues(hello.Module).Inc()
	one.receive(context.WithoutCancel(r.Context()))
	h.metrics.runners.WithLabelValues(hello.Module).Dec()
	d.leave(one)
	log.Info("a runner has left")
}

// admit takes a runner in, and makes its deployment the one that is called.
func (h *Host) admit(ctx context.Context, conn *ftlwire.Conn, hello *ftlwire.Hello, log *slog.Logger) (*dispatcher, *runner, error) {
	hello.Database = orDefault(hello.Database)
	hello.Credit = min(max(hello.Credit, 1), MaxCredit)
	db, err := h.store.Database(ctx, ftlwire.Namespace, hello.Database)
	if err != nil {
		return nil, nil, err
	}
	taken, err := takeOver(ctx, db, hello.Module, hello.Deployment)
	if err != nil {
		return nil, nil, err
	}
	d, err := h.dispatcherOf(hello.Database, db)
	if err != nil {
		return nil, nil, err
	}
	if taken {
		log.Info("a deployment takes over")
	}
	conn.Send(ftlwire.Frame{Welcome: &ftlwire.Welcome{Node: h.store.Node().Name}})
	one, ok := d.join(conn, hello, log)
	if !ok {
		return nil, nil, errStopping
	}
	return d, one, nil
}

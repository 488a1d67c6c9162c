package deploy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// Status is what is deployed in a database and how it does, all of one moment.
type Status struct {
	Database string         `json:"database"`
	Modules  []ModuleStatus `json:"modules"`
}

// ModuleStatus is a module.
type ModuleStatus struct {
	Module string `json:"module"`
	// Deployment is the one that is called, "" before its first runner, since
	// Since. NextDeployment was provisioned and has no runner yet.
	Deployment     string     `json:"deployment"`
	Since          *time.Time `json:"since"`
	NextDeployment string     `json:"next_deployment"`
	// Runners are those of the deployment that is called, by the node they are
	// connected to; one that is connected to several counts on each.
	Runners       []RunnersStatus      `json:"runners"`
	Topics        []TopicStatus        `json:"topics"`
	Subscriptions []SubscriptionStatus `json:"subscriptions"`
	Ingress       []IngressStatus      `json:"ingress"`
}

// RunnersStatus is the runners of a module on a node.
type RunnersStatus struct {
	Node    string   `json:"node"`
	Runners int      `json:"runners"`
	Ingress []string `json:"ingress"`
}

// IngressStatus is a verb that is served over HTTP.
type IngressStatus struct {
	Verb   string `json:"verb"`
	Method string `json:"method"`
	Path   string `json:"path"`
}

// TopicStatus is a topic of a module.
type TopicStatus struct {
	Topic    string `json:"topic"`
	Type     string `json:"type"`
	Exported bool   `json:"exported"`
	// Declared says that the newest deployment has it.
	Declared bool   `json:"declared"`
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Events   uint64 `json:"events"`
	// Publishers are the verbs, sinks and mappers that publish to it.
	Publishers []string `json:"publishers"`
}

// SubscriptionStatus is a subscription of a module.
type SubscriptionStatus struct {
	Subscription string `json:"subscription"`
	Topic        string `json:"topic"`
	Declared     bool   `json:"declared"`
	// Sinks or Mapper take its events.
	Sinks  []string `json:"sinks"`
	Mapper string   `json:"mapper"`
	// Node dispatches it, "" where no runner is connected anywhere.
	Node     string `json:"node"`
	Parallel int    `json:"parallel"`
	// Position is the last event that was taken, Lag how many events are not
	// settled.
	Position uint64 `json:"position"`
	Lag      uint64 `json:"lag"`
	// Lapsed are the events that retention removed before they were handled,
	// GivenUp those that were tried in vain.
	Lapsed  uint64 `json:"lapsed"`
	GivenUp uint64 `json:"given_up"`
	// InFlight are events that are being handled or wait for their next attempt,
	// the first maxInFlightShown of InFlightCount.
	InFlightCount int              `json:"in_flight_count"`
	InFlight      []InFlightStatus `json:"in_flight"`
	LastError     *LastError       `json:"last_error"`
}

// InFlightStatus is an event that is being handled, or waits for its next
// attempt.
type InFlightStatus struct {
	Position uint64 `json:"position"`
	// Attempt is the one that runs, or that failed last.
	Attempt int `json:"attempt"`
	// Verb has it since Since; where Until is set it has failed, and waits until
	// then.
	Verb  string     `json:"verb"`
	Since time.Time  `json:"since"`
	Until *time.Time `json:"until"`
	Error string     `json:"error"`
}

// LastError is the newest failure of a subscription.
type LastError struct {
	Position uint64    `json:"position"`
	Verb     string    `json:"verb"`
	Attempt  int       `json:"attempt"`
	Error    string    `json:"error"`
	At       time.Time `json:"at"`
	GivenUp  bool      `json:"given_up"`
}

// maxInFlightShown bounds what a subscription shows.
const maxInFlightShown = 20

// Status tells what is deployed in a database; fault.NotFound where there is no
// such database.
func (h *Host) Status(ctx context.Context, database string) (Status, error) {
	db, err := h.store.Database(ctx, ftlwire.Namespace, database)
	if err != nil {
		return Status{}, err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return Status{}, err
	}
	defer tx.Cancel()
	r := &reporting{catalog: catalog{ctx, tx}, database: database}
	if err := r.read(h.store); err != nil {
		return Status{}, err
	}
	status := Status{Database: database, Modules: []ModuleStatus{}}
	for _, name := range slices.Sorted(maps.Keys(r.modules)) {
		module, err := r.module(name)
		if err != nil {
			return Status{}, err
		}
		status.Modules = append(status.Modules, module)
	}
	return status, nil
}

// reporting is a status being put together.
type reporting struct {
	catalog
	situation
	database      string
	topics        map[string]topicRow
	subscriptions map[string]subscriptionRow
	attempts      map[string]attemptRow
	failures      map[string]failureRow
}

func (r *reporting) read(s *store.Store) (err error) {
	if r.modules, err = rows[moduleRow](r.catalog, tableModules); err != nil {
		return err
	}
	if r.runners, err = rows[runnersRow](r.catalog, tableRunners); err != nil {
		return err
	}
	if r.topics, err = rows[topicRow](r.catalog, tableTopics); err != nil {
		return err
	}
	if r.subscriptions, err = rows[subscriptionRow](r.catalog, tableSubscriptions); err != nil {
		return err
	}
	if r.attempts, err = rows[attemptRow](r.catalog, tableAttempts); err != nil {
		return err
	}
	if r.failures, err = rows[failureRow](r.catalog, tableFailures); err != nil {
		return err
	}
	r.live, err = liveNodes(r.ctx, s)
	return err
}

func (r *reporting) module(name string) (ModuleStatus, error) {
	row := r.modules[name]
	status := ModuleStatus{
		Module: name, Deployment: row.Deployment, NextDeployment: row.NextDeployment,
		Runners: r.runnersOf(name, row.Deployment), Topics: []TopicStatus{}, Subscriptions: []SubscriptionStatus{}, Ingress: []IngressStatus{},
	}
	text := row.Schema
	if row.Deployment == "" {
		text = row.NextSchema
	} else {
		status.Since = &row.Since
	}
	declared, err := parseModule(text)
	if err != nil {
		return status, err
	}
	for _, verb := range declared.Verbs {
		if verb.Ingress != nil {
			status.Ingress = append(status.Ingress, IngressStatus{name + "." + verb.Name, verb.Ingress.Method, verb.Ingress.Path})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.topics)) {
		if r.topics[key].Module == name {
			one, err := r.topic(r.topics[key], declared)
			if err != nil {
				return status, err
			}
			status.Topics = append(status.Topics, one)
		}
	}
	owners := r.owners(name, row.Deployment)
	for _, key := range slices.Sorted(maps.Keys(r.subscriptions)) {
		if r.subscriptions[key].Module == name {
			one, err := r.subscription(r.subscriptions[key], declared, owners)
			if err != nil {
				return status, err
			}
			status.Subscriptions = append(status.Subscriptions, one)
		}
	}
	return status, nil
}

func (r *reporting) runnersOf(module, deployment string) []RunnersStatus {
	list := []RunnersStatus{}
	for _, key := range slices.Sorted(maps.Keys(r.runners)) {
		row := r.runners[key]
		node, alive := r.live[row.Node]
		if row.Module != module || !alive {
			continue
		}
		for _, one := range row.Deployments {
			if one.Deployment == deployment {
				list = append(list, RunnersStatus{node.Name, one.Runners, one.Ingress})
			}
		}
	}
	return list
}

func (r *reporting) topic(row topicRow, declared *schema.Module) (TopicStatus, error) {
	status := TopicStatus{Topic: row.Topic, Type: row.Type, Exported: row.Exported, Declared: row.Declared, Publishers: publishers(declared, row)}
	table, err := r.tx.Catalog().TopicTable(row.StoreTopic)
	if err != nil {
		return status, unlessDropped(err)
	}
	report, err := r.tx.ReportTopic(r.ctx, table)
	status.First, status.Last, status.Events = uint64(report.First), uint64(report.Last), report.Messages
	return status, err
}

// unlessDropped is an error but where somebody has dropped the topic or the
// group: that is shown as empty.
func unlessDropped(err error) error {
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// publishers are the verbs of a module that publish to a topic.
func publishers(module *schema.Module, row topicRow) []string {
	ref := schema.Ref{Module: row.Module, Name: row.Name}
	list := []string{}
	add := func(verb string, topics []schema.Ref) {
		if slices.Contains(topics, ref) {
			list = append(list, module.Name+"."+verb)
		}
	}
	for _, verb := range module.Verbs {
		add(verb.Name, verb.Publish)
	}
	for _, sink := range module.Sinks {
		add(sink.Name, sink.Publish)
	}
	for _, mapper := range module.Mappers {
		add(mapper.Name, append(slices.Clone(mapper.Publish), mapper.Topic))
	}
	return list
}

func (r *reporting) subscription(row subscriptionRow, declared *schema.Module, owners ring) (SubscriptionStatus, error) {
	status := SubscriptionStatus{
		Subscription: row.Subscription, Topic: row.Topic, Declared: row.Declared, Parallel: row.Parallel,
		Sinks: []string{}, InFlight: []InFlightStatus{},
	}
	if declared.Subscription(row.Name) != nil {
		for _, sink := range declared.SinksOf(row.Name) {
			status.Sinks = append(status.Sinks, declared.Name+"."+sink.Name)
		}
		if mapper := declared.MapperOf(row.Name); mapper != nil {
			status.Mapper = declared.Name + "." + mapper.Name
		}
		status.Node = r.live[owners.owner(r.database, row.Subscription)].Name
	}
	if failure, ok := r.failures[row.Subscription]; ok {
		status.LastError = &LastError{
			Position: uint64(failure.Position), Verb: failure.Verb, Attempt: failure.Attempt,
			Error: failure.Error, At: failure.At, GivenUp: failure.GivenUp,
		}
	}
	state, err := r.tx.GroupState(r.ctx, row.StoreTopic, row.Subscription)
	if err != nil {
		return status, unlessDropped(err)
	}
	status.Position, status.Lag = uint64(state.Position), state.Lag
	status.Lapsed, status.GivenUp = state.Lapsed, state.DeadLettered
	status.InFlightCount = len(state.Held)
	for _, held := range state.Held[:min(len(state.Held), maxInFlightShown)] {
		status.InFlight = append(status.InFlight, r.inFlight(row, held, &status))
	}
	return status, nil
}

// owners are the nodes that dispatch the subscriptions of a module.
func (r *reporting) owners(module, deployment string) ring {
	nodes := r.serving(module, deployment, "")
	return newRing(slices.DeleteFunc(nodes, func(node string) bool { return node == "" }))
}

func (r *reporting) inFlight(row subscriptionRow, held store.Held, status *SubscriptionStatus) InFlightStatus {
	one := InFlightStatus{
		Position: uint64(held.Position), Attempt: int(held.Deliveries - held.Released),
		Since: held.Due.Add(-AckDeadline), Verb: strings.Join(status.Sinks, ", ") + status.Mapper,
	}
	if known, ok := r.attempts[attemptKey(row.Subscription, held.Position)]; ok {
		one.Attempt -= known.Forgiven
		one.Error = known.Error
		if known.CatchError != "" {
			one.Error = known.CatchError
		}
		if known.Delivery == int64(held.Deliveries) {
			one.Since, one.Verb = known.Since, known.Verb
		}
	}
	if held.Returned {
		until := held.Due
		one.Until = &until
	}
	return one
}

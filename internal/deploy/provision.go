package deploy

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// Changes are what a deployment changed, by names as module.topic.
type Changes struct {
	// Topics and Subscriptions are new, Altered have other bounds, and Kept are
	// there still, with their events and their place, although no deployment
	// declares them any more.
	Topics        []string `json:"topics"`
	Subscriptions []string `json:"subscriptions"`
	Altered       []string `json:"altered"`
	Kept          []string `json:"kept"`
}

// Provision makes what modules declare ready for a deployment of each, in one
// transaction: it compares their schema with what is there, makes the topics and
// subscriptions that are missing, alters the bounds of the others, and keeps
// each deployment as its module's next one, which its first runner makes the one
// that is called. deployments are the ids by module. A schema that is as it was
// changes nothing.
//
// It returns fault.TypeMismatch for an event type that could not read the events
// that are there, with both shapes, and fault.InvalidClause for a schema that is
// not valid, by itself or beside the modules that are deployed. Nothing is
// changed then.
func (h *Host) Provision(ctx context.Context, database string, deployments map[string]string, text string) (Changes, error) {
	declared, err := schema.Parse(text)
	if err != nil {
		return Changes{}, syntaxFault(err)
	}
	for _, overlap := range declared.Overlaps() {
		return Changes{}, overlap.Err()
	}
	for _, module := range declared.Modules {
		if err := checkDeployment(module.Name, deployments[module.Name]); err != nil {
			return Changes{}, err
		}
	}
	if err := h.store.DefineNamespace(ctx, ftlwire.Namespace, true); err != nil {
		return Changes{}, err
	}
	if err := h.store.DefineDatabase(ctx, ftlwire.Namespace, database, true); err != nil {
		return Changes{}, err
	}
	db, err := h.store.Database(ctx, ftlwire.Namespace, database)
	if err != nil {
		return Changes{}, err
	}
	var changes Changes
	err = transact(ctx, db, func(c catalog) error {
		changes = Changes{Topics: []string{}, Subscriptions: []string{}, Altered: []string{}, Kept: []string{}}
		if err := c.define(); err != nil {
			return err
		}
		if err := c.check(declared); err != nil {
			return err
		}
		// Topics first: a subscription may be to another module's.
		for _, step := range []func(*provisioning) error{(*provisioning).topics, (*provisioning).subscriptions, (*provisioning).deploy} {
			for _, module := range declared.Modules {
				if err := step(&provisioning{c, module, deployments[module.Name], &changes}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return Changes{}, err
	}
	h.log.Info("modules are provisioned", slog.Any("deployments", deployments), slog.String("database", database),
		slog.Any("new topics", changes.Topics), slog.Any("new subscriptions", changes.Subscriptions))
	h.wake(database)
	return changes, nil
}

// maxDeploymentBytes bounds a deployment's id.
const maxDeploymentBytes = 200

func checkDeployment(module, deployment string) error {
	if module == reservedModule {
		return fault.New(fault.InvalidClause, "no module can be called %s: the tables of what is deployed begin with that name", module)
	}
	if deployment == "" || len(deployment) > maxDeploymentBytes {
		return fault.New(fault.InvalidClause, "the id of the deployment of module %s has %d bytes; it takes 1 to %d", module, len(deployment), maxDeploymentBytes)
	}
	return nil
}

// syntaxFault is a mistake in a schema's text as an error of package fault.
func syntaxFault(err error) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return err
	}
	return fault.New(fault.Syntax, "the schema does not parse: %s", err)
}

// transact runs work in a transaction until it commits.
func transact(ctx context.Context, db *store.Database, work func(catalog) error) error {
	return session.Rerun(ctx, func() error {
		tx, err := db.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Cancel()
		if err := work(catalog{ctx, tx}); err != nil {
			return err
		}
		_, err = tx.Commit(ctx)
		return err
	})
}

// check refuses a schema that does not go with what is deployed, or whose events
// do not go with those that are there.
func (c catalog) check(declared *schema.Schema) error {
	modules, err := rows[moduleRow](c, tableModules)
	if err != nil {
		return err
	}
	now, others := &schema.Schema{}, []*schema.Module{}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		row := modules[name]
		deployed, err := parseModule(row.newest())
		if err != nil {
			return err
		}
		now.Modules = append(now.Modules, deployed)
		if declared.Module(name) == nil {
			others = append(others, deployed)
		}
	}
	next := &schema.Schema{Modules: append(slices.Clone(declared.Modules), others...)}
	if err := next.Validate(); err != nil {
		return err
	}
	if err := schema.Compatible(now, next); err != nil {
		return err
	}
	for _, module := range declared.Modules {
		if err := c.checkKept(module, others, next); err != nil {
			return err
		}
	}
	return nil
}

// checkKept compares a module's topics with those that no deployment declared
// for a while.
func (c catalog) checkKept(module *schema.Module, others []*schema.Module, next *schema.Schema) error {
	for _, declared := range module.Topics {
		var row topicRow
		found, err := c.get(tableTopics, schema.Ref{Module: module.Name, Name: declared.Name}.String(), &row)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		shape, err := parseModule(row.Shape)
		if err != nil {
			return err
		}
		was := &schema.Schema{Modules: append([]*schema.Module{shape}, others...)}
		if err := schema.Compatible(was, next); err != nil {
			return err
		}
	}
	return nil
}

// provisioning is one module being compared with what is there.
type provisioning struct {
	catalog
	module     *schema.Module
	deployment string
	changes    *Changes
}

func (p *provisioning) topics() error {
	for _, declared := range p.module.Topics {
		if err := p.topic(declared); err != nil {
			return err
		}
	}
	return nil
}

func (p *provisioning) subscriptions() error {
	for _, declared := range p.module.Subscriptions {
		if err := p.subscription(declared); err != nil {
			return err
		}
	}
	return nil
}

// deploy keeps the deployment as the next one, unless it is called already.
func (p *provisioning) deploy() error {
	if err := p.keep(); err != nil {
		return err
	}
	row := moduleRow{Module: p.module.Name}
	if _, err := p.get(tableModules, p.module.Name, &row); err != nil {
		return err
	}
	text := p.module.String()
	if row.Deployment != p.deployment {
		row.NextDeployment, row.NextSchema = p.deployment, text
		return p.put(tableModules, p.module.Name, row)
	}
	if row.Schema != text {
		return fault.New(fault.AlreadyExists, "the deployment %s of module %s has another schema; give the new build an id of its own", p.deployment, p.module.Name)
	}
	row.NextDeployment, row.NextSchema = "", ""
	return p.put(tableModules, p.module.Name, row)
}

// topic makes or alters a topic.
func (p *provisioning) topic(declared *schema.Topic) error {
	table := storeTopic(p.module.Name, declared)
	ref := schema.Ref{Module: p.module.Name, Name: declared.Name}.String()
	now, err := p.tx.Now(p.ctx)
	if err != nil {
		return err
	}
	row := topicRow{CreatedAt: now}
	if _, err := p.get(tableTopics, ref, &row); err != nil {
		return err
	}
	row.Topic, row.Module, row.Name, row.StoreTopic = ref, p.module.Name, declared.Name, table.Name
	row.Type, row.Shape = declared.Event.String(), shapeOf(p.module, declared).String()
	row.Exported, row.Declared = declared.Exported, true
	if err := p.put(tableTopics, ref, row); err != nil {
		return err
	}
	existing, err := p.tx.Catalog().TopicTable(table.Name)
	switch {
	case errors.Is(err, fault.NotFound):
		p.changes.Topics = append(p.changes.Topics, ref)
		return p.tx.DefineTable(p.ctx, table, store.Refuse)
	case err != nil:
		return err
	case existing.Topic.Retain == table.Topic.Retain && existing.Topic.RetainBytes == table.Topic.RetainBytes:
		return nil
	}
	p.changes.Altered = append(p.changes.Altered, ref)
	return p.tx.AlterTopic(p.ctx, table.Name, func(d *topic.TopicDefinition) error {
		d.Retain, d.RetainBytes = table.Topic.Retain, table.Topic.RetainBytes
		return nil
	})
}

// subscription makes or alters a subscription.
func (p *provisioning) subscription(declared *schema.Subscription) error {
	group, topicName := groupOf(p.module.Name, declared.Name), storeTopicOf(declared.Topic)
	now, err := p.tx.Now(p.ctx)
	if err != nil {
		return err
	}
	row := subscriptionRow{CreatedAt: now}
	if _, err := p.get(tableSubscriptions, group, &row); err != nil {
		return err
	}
	row.Subscription, row.Module, row.Name = group, p.module.Name, declared.Name
	row.Topic, row.StoreTopic = declared.Topic.String(), topicName
	row.FromLatest, row.Parallel, row.Declared = declared.FromLatest, declared.InFlight(), true
	if err := p.put(tableSubscriptions, group, row); err != nil {
		return err
	}
	table, err := p.tx.Catalog().TopicTable(topicName)
	if err != nil {
		return err
	}
	definition := groupDefinition(declared)
	existing, ok := table.Groups[group]
	switch {
	case !ok:
		p.changes.Subscriptions = append(p.changes.Subscriptions, group)
		return p.begin(topicName, group, definition, declared.FromLatest)
	case existing.Definition.InFlight == definition.InFlight:
		return nil
	}
	p.changes.Altered = append(p.changes.Altered, group)
	return p.tx.AlterGroup(p.ctx, topicName, group, func(d *topic.GroupDefinition) error {
		d.InFlight = definition.InFlight
		return nil
	})
}

// begin makes the group of a new subscription, at the topic's beginning or at
// its end.
func (p *provisioning) begin(topicName, group string, definition topic.GroupDefinition, fromLatest bool) error {
	if err := p.tx.DefineGroup(p.ctx, topicName, group, definition, nil, store.Refuse); err != nil {
		return err
	}
	if !fromLatest {
		return nil
	}
	state, err := p.tx.GroupState(p.ctx, topicName, group)
	if err != nil || state.Last == 0 {
		return err
	}
	return p.tx.StartAt(p.ctx, topicName, group, state.Last)
}

// keep notes what no deployment declares any more.
func (p *provisioning) keep() error {
	topics, err := rows[topicRow](p.catalog, tableTopics)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(topics)) {
		row := topics[key]
		if row.Module != p.module.Name || p.module.Topic(row.Name) != nil {
			continue
		}
		p.changes.Kept = append(p.changes.Kept, key)
		row.Declared = false
		if err := p.put(tableTopics, key, row); err != nil {
			return err
		}
	}
	subscriptions, err := rows[subscriptionRow](p.catalog, tableSubscriptions)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(subscriptions)) {
		row := subscriptions[key]
		if row.Module != p.module.Name || p.module.Subscription(row.Name) != nil {
			continue
		}
		p.changes.Kept = append(p.changes.Kept, key)
		row.Declared = false
		if err := p.put(tableSubscriptions, key, row); err != nil {
			return err
		}
	}
	return nil
}

// takeOver makes a deployment the one whose runners are called, because one of
// them has said hello. It does nothing where it is already, and returns
// fault.NotFound where the deployment was not provisioned, or was superseded.
func takeOver(ctx context.Context, db *store.Database, module, deployment string) (taken bool, err error) {
	err = transact(ctx, db, func(c catalog) error {
		taken = false
		var row moduleRow
		found, err := c.get(tableModules, module, &row)
		switch {
		case err != nil:
			return err
		case !found:
			return fault.New(fault.NotFound, "module %s is not deployed in database %s; tidemark ftl deploy provisions and starts it", module, db.Name)
		case row.Deployment == deployment:
			return nil
		case row.NextDeployment != deployment:
			return fault.New(fault.NotFound, "the deployment %s of module %s was superseded by %s; deploy it again to go back to it", deployment, module, row.names())
		}
		taken = true
		row.Deployment, row.Schema, row.NextDeployment, row.NextSchema = deployment, row.NextSchema, "", ""
		if row.Since, err = c.tx.Now(ctx); err != nil {
			return err
		}
		if err := c.put(tableModules, module, row); err != nil {
			return err
		}
		return c.subscribers(row)
	})
	return taken, err
}

// names are the deployments of a module that may run, for people.
func (m *moduleRow) names() string {
	switch {
	case m.NextDeployment == "":
		return m.Deployment
	case m.Deployment == "":
		return m.NextDeployment
	}
	return m.Deployment + " and " + m.NextDeployment
}

// subscribers makes the rows of who subscribes those of a deployment.
func (c catalog) subscribers(row moduleRow) error {
	module, err := parseModule(row.Schema)
	if err != nil {
		return err
	}
	sinks, mappers := map[string]subscriberRow{}, map[string]mapperRow{}
	for _, sink := range module.Sinks {
		one := subscriberRow{groupOf(module.Name, sink.Subscription), module.Name, module.Name + "." + sink.Name}
		sinks[one.Subscription+"/"+one.Sink] = one
	}
	for _, mapper := range module.Mappers {
		one := mapperRow{groupOf(module.Name, mapper.Subscription), module.Name, module.Name + "." + mapper.Name, mapper.Topic.String()}
		mappers[one.Subscription+"/"+one.Mapper+"/"+one.Topic] = one
	}
	if err := replace(c, tableSubscribers, module.Name, sinks); err != nil {
		return err
	}
	return replace(c, tableMappers, module.Name, mappers)
}

// replace makes the rows of a module those that are given.
func replace[R any](c catalog, table, module string, wanted map[string]R) error {
	present, err := rows[R](c, table)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(present)) {
		if _, stays := wanted[key]; !stays && ofModule(key, module) {
			if err := c.remove(table, key); err != nil {
				return err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if err := c.put(table, key, wanted[key]); err != nil {
			return err
		}
	}
	return nil
}

package session

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// MaxParallelism bounds PARALLELISM: each member is a goroutine here, and of a
// Kafka consumer a connection to the broker as well.
const MaxParallelism = 64

// The guarantees of the two sources, which INFO repeats at the point where they
// are configured.
const (
	exactlyOnce = "exactly once into this store"
	atLeastOnce = "at least once, idempotent by identity"
)

// defineTopicConsumer declares a topic read into a table.
func (s *Session) defineTopicConsumer(e *environment, tx *store.Tx, x *lang.DefineTopicConsumer) error {
	if err := s.sameDatabase(x.From, x.Into); err != nil {
		return err
	}
	source, err := tx.Catalog().TopicTable(x.From.Name)
	if err != nil {
		return err
	}
	consumer := store.Consumer{Kind: store.TopicConsumer, Name: x.Name, From: source.Name, DeclaredBy: s.declarer()}
	if consumer.Group, err = e.clauseString("GROUP", x.Group); err != nil {
		return err
	}
	group, ok := source.Groups[consumer.Group]
	if !ok {
		return fault.New(fault.NotFound, "topic %s has no group '%s'; DEFINE GROUP declares it first, with its deadline and width", source.Name, consumer.Group)
	}
	if err := e.landing(tx.Catalog(), x.Landing, &consumer); err != nil {
		return err
	}
	if d := group.Definition; consumer.Quarantine && (d.Deliveries == 0 || d.DeadLetter == "") {
		return fault.New(fault.InvalidClause,
			"ON FAILURE quarantine needs DELIVERIES and DEAD LETTER TO on group '%s': without them a message that cannot be applied would be handed out forever", consumer.Group)
	}
	return tx.DefineConsumer(e.ctx, consumer, existing(x.IfNotExists, x.Overwrite))
}

// sameDatabase refuses a topic and a table of two databases: what a consumer
// reads and what it writes are one transaction, which is one database's. A
// consumer is declared in that database.
func (s *Session) sameDatabase(from, into lang.QualifiedName) error {
	inUse := s.database.Name
	source, destination := from.Database, into.Database
	if source == "" {
		source = inUse
	}
	if destination == "" {
		destination = inUse
	}
	switch {
	case source != destination:
		return fault.New(fault.InvalidClause,
			"the topic is in database %s and the table in database %s; what is read and what is written are one transaction, so both must be in one database", source, destination)
	case destination != inUse:
		return fault.New(fault.InvalidClause,
			"the table is in database %s, and database %s is in use; a consumer is declared in the database it writes to: USE DATABASE %s first",
			destination, inUse, value.QuoteIdentifier(destination))
	}
	return nil
}

// landing sets what both kinds of consumer say of where messages land.
func (e *environment) landing(catalog *store.Catalog, x lang.Landing, consumer *store.Consumer) (err error) {
	table, err := catalog.Table(x.Into.Name)
	if err != nil {
		return err
	}
	if table.Kind != store.TypedTable && table.Kind != store.Collection {
		return fault.New(fault.InvalidClause, "INTO takes a table or a collection; %s is a %s", table.Name, table.Kind)
	}
	consumer.Into, consumer.Identity, consumer.Quarantine = table.Name, x.Identity, x.Quarantine
	if consumer.Map, err = mappings(table, x.Map); err != nil {
		return err
	}
	consumer.Parallelism = 1
	if x.Parallelism == nil {
		return nil
	}
	members, err := e.clauseInt("PARALLELISM", x.Parallelism)
	if err != nil {
		return err
	}
	if members < 1 || members > MaxParallelism {
		return fault.New(fault.InvalidClause, "PARALLELISM is %d; it must be from 1 to %d", members, MaxParallelism)
	}
	consumer.Parallelism = int(members)
	return nil
}

// mappings are those of a MAP. What could apply to no message is refused here,
// where it is written, and not at the first message.
func mappings(table *store.Table, x []lang.Mapping) ([]store.Mapping, error) {
	list := make([]store.Mapping, len(x))
	for i, m := range x {
		list[i] = store.Mapping{From: m.From, To: m.To}
		for _, earlier := range list[:i] {
			if earlier.To == m.To {
				return nil, fault.New(fault.InvalidClause, "MAP maps both %s and %s onto %s; which one wins would be arbitrary", earlier.From, m.From, m.To)
			}
		}
		if m.To == "id" {
			return nil, fault.New(fault.InvalidClause, "MAP %s AS id: id is the record's identity, which IDENTITY names", m.From)
		}
		known := slices.ContainsFunc(table.Fields, func(f store.Field) bool { return f.Name == m.To })
		if table.Kind == store.TypedTable && !known {
			return nil, fault.New(fault.UnknownField, "MAP %s AS %s: table %s has no field %s", m.From, m.To, table.Name, m.To)
		}
	}
	return list, nil
}

// defineKafkaConsumer declares a Kafka topic read into a table. Whether a
// broker can be reached is asked when the consumer dials it.
func (s *Session) defineKafkaConsumer(e *environment, tx *store.Tx, x *lang.DefineKafkaConsumer) error {
	if err := s.sameDatabase(lang.QualifiedName{Database: x.Into.Database}, x.Into); err != nil {
		return err
	}
	consumer := store.Consumer{Kind: store.KafkaConsumer, Name: x.Name, Format: x.Format, DeclaredBy: s.declarer()}
	for _, expression := range x.Brokers {
		broker, err := e.filledString("FROM", expression)
		if err != nil {
			return err
		}
		consumer.Brokers = append(consumer.Brokers, broker)
	}
	var err error
	if consumer.Settings, err = e.kafkaSettings(x.With); err != nil {
		return err
	}
	if consumer.From, err = e.filledString("TOPIC", x.Topic); err != nil {
		return err
	}
	if consumer.Group, err = e.filledString("GROUP", x.Group); err != nil {
		return err
	}
	if x.Format != "json" {
		return fault.New(fault.InvalidClause, "FORMAT %s is not read by this build; json is", x.Format)
	}
	if err := e.landing(tx.Catalog(), x.Landing, &consumer); err != nil {
		return err
	}
	return tx.DefineConsumer(e.ctx, consumer, existing(x.IfNotExists, x.Overwrite))
}

// filledString computes a clause that takes a string with something in it.
func (e *environment) filledString(clause string, expression lang.Expression) (string, error) {
	text, err := e.clauseString(clause, expression)
	if err == nil && text == "" {
		err = fault.New(fault.InvalidClause, "%s is an empty string", clause)
	}
	return text, err
}

// kafkaSettings are those of WITH, as text; a Kafka client checks them.
func (e *environment) kafkaSettings(with []lang.Setting) (map[string]string, error) {
	if len(with) == 0 {
		return nil, nil
	}
	settings := make(map[string]string, len(with))
	for _, setting := range with {
		v, err := e.evaluate(setting.Value)
		if err != nil {
			return nil, err
		}
		if b, ok := v.AsBool(); ok {
			settings[setting.Name] = strconv.FormatBool(b)
		} else if text, ok := v.AsString(); ok {
			settings[setting.Name] = text
		} else {
			return nil, fault.New(fault.InvalidClause, "WITH %s takes a string, true or false, not %s", setting.Name, v)
		}
	}
	return settings, CheckKafkaSettings(settings)
}

// The settings of a Kafka client, as WITH names them. Those that end in
// "_from" name a setting of the node, which holds what must not stand in a
// declaration: see SecretPrefix.
const (
	SettingTLS            = "tls"
	SettingTLSServer      = "tls.server"
	SettingTLSAuthorities = "tls.authorities_from"
	SettingTLSCertificate = "tls.certificate_from"
	SettingTLSKey         = "tls.key_from"
	SettingSASLMechanism  = "sasl.mechanism"
	SettingSASLUser       = "sasl.user"
	SettingSASLPassword   = "sasl.password_from"
)

// SecretPrefix begins the names of the environment variables that a
// declaration may refer to: sasl.password_from = 'ORDERS' is the variable
// TIDEMARK_SECRET_ORDERS of each node. Whoever declares a consumer chooses the
// broker that a secret is sent to, so no other variable can be named.
const SecretPrefix = "TIDEMARK_SECRET_"

var kafkaSettingNames = []string{
	SettingTLS, SettingTLSServer, SettingTLSAuthorities, SettingTLSCertificate, SettingTLSKey,
	SettingSASLMechanism, SettingSASLUser, SettingSASLPassword,
}

// SASLMechanisms are those that a consumer can sign in to a broker with.
var SASLMechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

// CheckKafkaSettings returns fault.InvalidClause for settings that do not
// exist or do not fit together.
func CheckKafkaSettings(settings map[string]string) error {
	for name, setting := range settings {
		switch {
		case name == "sasl.password" || name == "sasl.username" || name == "tls.key":
			return fault.New(fault.InvalidClause,
				"WITH %s is not known: the user's name is sasl.user, and a secret is never part of a declaration: sasl.password_from = 'NAME' and tls.key_from = 'NAME' refer to the node's environment variable %sNAME", name, SecretPrefix)
		case !slices.Contains(kafkaSettingNames, name):
			return fault.New(fault.InvalidClause, "WITH %s is not known; there are %s", name, strings.Join(kafkaSettingNames, ", "))
		case name == SettingTLS && setting != "true" && setting != "false":
			return fault.New(fault.InvalidClause, "WITH tls takes true or false, not '%s'", setting)
		case name == SettingSASLMechanism && !slices.Contains(SASLMechanisms, setting):
			return fault.New(fault.InvalidClause, "WITH sasl.mechanism is '%s'; it must be one of %s", setting, strings.Join(SASLMechanisms, ", "))
		}
	}
	has := func(name string) bool { return settings[name] != "" }
	if has(SettingSASLMechanism) != has(SettingSASLUser) || has(SettingSASLUser) != has(SettingSASLPassword) {
		return fault.New(fault.InvalidClause, "WITH takes all of %s, %s and %s, or none of them", SettingSASLMechanism, SettingSASLUser, SettingSASLPassword)
	}
	if has(SettingTLSCertificate) != has(SettingTLSKey) {
		return fault.New(fault.InvalidClause, "WITH takes both of %s and %s, or none of them", SettingTLSCertificate, SettingTLSKey)
	}
	return nil
}

// consumerKinds are the catalog's kinds of consumers, by the word of a
// statement.
var consumerKinds = map[lang.Kind]store.ConsumerKind{
	lang.TopicConsumer: store.TopicConsumer, lang.TopicConsumers: store.TopicConsumer,
	lang.KafkaConsumer: store.KafkaConsumer, lang.KafkaConsumers: store.KafkaConsumer,
}

// report is what this node tells of a consumer that it runs.
func (s *Session) report(consumer *store.Consumer) value.Object {
	if s.running == nil {
		return value.Object{}
	}
	return s.running.Report(s.database, consumer)
}

// runs reports whether this node runs a consumer.
func (s *Session) runs(consumer *store.Consumer) value.Value {
	running, _ := s.report(consumer)["running"].AsBool()
	return value.Bool(running)
}

func (s *Session) infoConsumers(tx *store.Tx, kind store.ConsumerKind) Answer {
	list := []value.Value{}
	for _, consumer := range tx.Catalog().Consumers(kind) {
		if !s.authority.may(store.MayManage, consumer.Into) {
			continue // Nor could the caller ask about it.
		}
		list = append(list, value.Fields(value.Object{"consumer": value.String(consumer.Name), "running": s.runs(consumer)}))
	}
	return Answer{Value: value.Array(list...)}
}

func (s *Session) infoConsumer(e *environment, tx *store.Tx, kind store.ConsumerKind, name string) (Answer, error) {
	consumer, err := tx.Catalog().Consumer(kind, name)
	if err != nil {
		return Answer{}, err
	}
	info := value.Object{
		"declared":   declaredInfo(consumer),
		"guarantees": guarantees(kind),
	}
	running := s.report(consumer)
	if kind == store.KafkaConsumer {
		if info["quarantine"], err = s.quarantineInfo(e, tx, consumer); err != nil {
			return Answer{}, err
		}
	} else if len(running) > 0 {
		if running["lag"], err = groupLag(e, tx, consumer); err != nil {
			return Answer{}, err
		}
	}
	info["running"] = value.Fields(running)
	return object(info), nil
}

// declaredInfo is what a backup carries and every node agrees on. Settings are
// shown: those that are secret are references.
func declaredInfo(c *store.Consumer) value.Value {
	onFailure := "stop"
	if c.Quarantine {
		onFailure = "quarantine"
	}
	declared := value.Object{
		"consumer":    value.String(c.Name),
		"group":       value.String(c.Group),
		"into":        value.String(c.Into),
		"identity":    value.String(c.Identity.String()),
		"map":         mapInfo(c.Map),
		"on_failure":  value.String(onFailure),
		"parallelism": value.Int(int64(c.Parallelism)),
	}
	if c.Kind == store.TopicConsumer {
		declared["from"] = value.String(c.From)
		return value.Fields(declared)
	}
	declared["brokers"] = names(c.Brokers)
	declared["topic"] = value.String(c.From)
	declared["format"] = value.String(c.Format)
	if len(c.Settings) > 0 {
		settings := value.Object{}
		for name, setting := range c.Settings {
			settings[name] = value.String(setting)
		}
		declared["with"] = value.Fields(settings)
	}
	return value.Fields(declared)
}

// mapInfo shows mappings by what they read: a field of the message that becomes
// several of the record has them in an array.
func mapInfo(mappings []store.Mapping) value.Value {
	targets := map[string][]string{}
	for _, m := range mappings {
		targets[m.From.String()] = append(targets[m.From.String()], m.To)
	}
	info := value.Object{}
	for from, to := range targets {
		if len(to) == 1 {
			info[from] = value.String(to[0])
		} else {
			info[from] = names(to)
		}
	}
	return value.Fields(info)
}

func guarantees(kind store.ConsumerKind) value.Value {
	delivery := exactlyOnce
	if kind == store.KafkaConsumer {
		delivery = atLeastOnce
	}
	return value.Fields(value.Object{
		"delivery":         value.String(delivery),
		"exactly_once":     value.Bool(kind == store.TopicConsumer),
		"schema_inference": value.Bool(false),
	})
}

// groupLag is how far the group of a consumer is behind, null where its topic
// or group was dropped.
func groupLag(e *environment, tx *store.Tx, consumer *store.Consumer) (value.Value, error) {
	figures, _, err := tx.GroupFigures(e.ctx, consumer.From, consumer.Group)
	if errors.Is(err, fault.NotFound) {
		return value.Null(), nil
	}
	return count(figures.Lag), err
}

// hiddenTable stands for a table whose name is not told.
const hiddenTable = "hidden"

// quarantineInfo lists what a Kafka consumer parked, oldest first. A payload
// was on its way into the table, so it is told to who may read that.
func (s *Session) quarantineInfo(e *environment, tx *store.Tx, consumer *store.Consumer) (value.Value, error) {
	parked, err := tx.Parked(e.ctx, consumer.ID)
	if err != nil {
		return value.None(), err
	}
	withheld := !s.authority.may(store.MayRead, consumer.Into)
	list := make([]value.Value, len(parked))
	for i, p := range parked {
		list[i] = value.Fields(value.Object{
			"partition": value.Int(int64(p.Partition)),
			"offset":    value.Int(p.Offset),
			"reason":    value.String(p.Reason),
			"payload":   orNull(!withheld, payloadInfo(p.Payload)),
			"withheld":  value.Bool(withheld),
			"at":        value.Datetime(p.At),
		})
	}
	return value.Array(list...), nil
}

// payloadInfo is a payload as text where it is text, as bytes (base64 in JSON)
// where it is not, and null where the message had none.
func payloadInfo(payload []byte) value.Value {
	if payload == nil {
		return value.Null()
	}
	text := value.String(string(payload))
	if _, err := text.Size(); err != nil {
		return value.Bytes(payload)
	}
	return text
}

// ingestedBy lists the topic consumers that read a topic.
func (s *Session) ingestedBy(tx *store.Tx, topicName string) value.Value {
	list := []value.Value{}
	for _, consumer := range tx.Catalog().Consumers(store.TopicConsumer) {
		if consumer.From != topicName {
			continue
		}
		table := consumer.Into
		if !s.authority.may(store.MayRead, table) {
			table = hiddenTable
		}
		list = append(list, value.Fields(value.Object{
			"consumer": value.String(consumer.Name),
			"group":    value.String(consumer.Group),
			"table":    value.String(table),
			"running":  s.runs(consumer),
		}))
	}
	return value.Array(list...)
}

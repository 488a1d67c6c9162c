package fault

import (
	"maps"
	"slices"
)

// The kinds that topics and groups answer.
const (
	TopicIsAppendOnly    Kind = "TopicIsAppendOnly"
	TopicMessageTooLarge Kind = "TopicMessageTooLarge"
	TopicRetainExceeded  Kind = "TopicRetainExceeded"
	TopicRateExceeded    Kind = "TopicRateExceeded"
	DeduplicationKey     Kind = "DeduplicationKey"
	AfterOnGroup         Kind = "AfterOnGroup"
	NotAGroup            Kind = "NotAGroup"
	DeadLetterIsTheTopic Kind = "DeadLetterIsTheTopic"
	GroupExists          Kind = "GroupExists"
)

// The kinds that any statement may answer.
const (
	Syntax            Kind = "Syntax"
	NotFound          Kind = "NotFound"
	AlreadyExists     Kind = "AlreadyExists"
	RecordExists      Kind = "RecordExists"
	TypeMismatch      Kind = "TypeMismatch"
	AssertionFailed   Kind = "AssertionFailed"
	UnknownField      Kind = "UnknownField"
	Conflict          Kind = "Conflict"
	TransactionFailed Kind = "TransactionFailed"
	NoTransaction     Kind = "NoTransaction"
	NestedTransaction Kind = "NestedTransaction"
	NotSignedIn       Kind = "NotSignedIn"
	NotAllowed        Kind = "NotAllowed"
	InvalidClause     Kind = "InvalidClause"
	Unavailable       Kind = "Unavailable"
	TooLarge          Kind = "TooLarge"
	Timeout           Kind = "Timeout"
	Cancelled         Kind = "Cancelled"
	Internal          Kind = "Internal"
)

type row struct {
	retriable bool
	meaning   string
}

var table = map[Kind]row{
	TopicIsAppendOnly:    {false, "A message is never changed or deleted by a statement; append a correction instead."},
	TopicMessageTooLarge: {false, "The message's encoded value is larger than the topic's MAX BYTES."},
	TopicRetainExceeded:  {false, "One commit's own messages add up to more than the topic's RETAIN BYTES."},
	TopicRateExceeded:    {true, "Anonymous callers appended more messages than the topic's PUBLIC RATE admits."},
	DeduplicationKey:     {false, "The field a topic deduplicates on holds something that is not a string, an int, a uuid or bytes."},
	AfterOnGroup:         {false, "A member of a group cannot move the group's place with AFTER or SINCE; ALTER GROUP … START AT does."},
	NotAGroup:            {false, "No group of this name is defined on the topic, so nothing is held that could be settled."},
	DeadLetterIsTheTopic: {false, "A group's dead letters cannot go to the topic that the group reads."},
	GroupExists:          {false, "A group of this name is defined on the topic already."},

	Syntax:            {false, "The script does not parse; nothing of it ran."},
	NotFound:          {false, "What the statement names does not exist."},
	AlreadyExists:     {false, "A definition of this name exists already."},
	RecordExists:      {false, "The identity is taken."},
	TypeMismatch:      {false, "A value is not of the type that its place requires."},
	AssertionFailed:   {false, "A field's ASSERT is not true for the record."},
	UnknownField:      {false, "The record has a field that its table does not name."},
	Conflict:          {true, "Another transaction committed first something that this one wrote or read as a consumer."},
	TransactionFailed: {false, "A statement of this transaction failed, so nothing of it commits; CANCEL it."},
	NoTransaction:     {false, "COMMIT or CANCEL without a transaction that is open."},
	NestedTransaction: {false, "BEGIN inside a transaction."},
	NotSignedIn:       {false, "The store requires a signed-in user."},
	NotAllowed:        {false, "The user's role and grants do not allow the statement."},
	InvalidClause:     {false, "A clause's value is out of its bounds, or clauses do not fit together."},
	Unavailable:       {true, "The engine cannot be reached or written now."},
	TooLarge:          {false, "An answer, a request or a value is over a limit that the message names."},
	Timeout:           {true, "The time a statement may take has passed."},
	Cancelled:         {true, "The caller gave up before the answer."},
	Internal:          {false, "Something is broken inside; the node's log has the details."},
}

// Kinds returns every kind, by name.
func Kinds() []Kind { return slices.Sorted(maps.Keys(table)) }

package session

import (
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// need is one thing that a user must hold for a statement: a privilege on a
// table, or on the database in use where table is "".
type need struct {
	privilege store.Privileges
	table     string

	// owner says that the user must be an owner of the store, or of the
	// namespace or database in use, or of what is above it.
	owner bool
	on    lang.Kind

	// consumer says that table is the name of a declared consumer of this kind,
	// which the user must look after. asks says that it is only asked about,
	// ifThere that one which is not there needs nothing.
	consumer      lang.Kind
	asks, ifThere bool
}

// needs is what a statement needs, of every table that it names. A statement
// of which nothing is said here needs an owner of the store.
//
//   - read: to SELECT, READ and FOLLOW, also as a reader or as a member of a
//     group, and to settle what a group handed out; to ask about the table.
//   - write: to CREATE, INSERT and UPSERT. UPDATE and DELETE need read too: they
//     answer what was there.
//   - manage: to change or drop the table, its groups, and the consumers that
//     write it; on the database, to define what is new.
//   - who defines users and gives grants is an owner.
func needs(statement lang.Statement) []need {
	switch x := statement.(type) {
	case *lang.Begin, *lang.Commit, *lang.Cancel, *lang.Sleep:
		return nil
	case *lang.Use:
		return nil // What the user reaches is looked at where it is known.
	case *lang.Create:
		return []need{{privilege: store.MayWrite, table: x.Target.Table}}
	case *lang.Insert:
		return []need{{privilege: store.MayWrite, table: x.Table}}
	case *lang.Upsert:
		return []need{{privilege: store.MayWrite, table: x.Target.Table}}
	case *lang.Update:
		return []need{{privilege: store.MayRead | store.MayWrite, table: x.Target.Table}}
	case *lang.Delete:
		return []need{{privilege: store.MayRead | store.MayWrite, table: x.Target.Table}}
	case *lang.Select:
		return []need{{privilege: store.MayRead, table: x.From.Table}}
	case *lang.Read:
		return []need{{privilege: store.MayRead, table: x.Topic}}
	case *lang.Follow:
		return []need{{privilege: store.MayRead, table: x.Topic}}
	case *lang.Settle:
		return []need{{privilege: store.MayRead, table: x.Topic}}
	case *lang.Info:
		return infoNeeds(x)
	}
	return definitionNeeds(statement)
}

// infoNeeds is needs for INFO. What tells of many things tells each caller of
// those that are there for it.
func infoNeeds(x *lang.Info) []need {
	switch x.Kind {
	case lang.Table, lang.Topic:
		return []need{{privilege: store.MayRead, table: x.Name}}
	case lang.TopicConsumer, lang.KafkaConsumer:
		return []need{{consumer: x.Kind, table: x.Name, asks: true}}
	}
	return nil
}

// definitionNeeds is needs for what defines something.
func definitionNeeds(statement lang.Statement) []need {
	switch x := statement.(type) {
	case *lang.Define:
		switch x.Kind {
		case lang.Namespace:
			return []need{{owner: true, on: lang.Store}}
		case lang.Database:
			return []need{{owner: true, on: lang.Namespace}}
		}
		return []need{{privilege: store.MayManage}}
	case *lang.DefineTable:
		if x.Overwrite {
			return []need{{privilege: store.MayManage, table: x.Name}}
		}
		return []need{{privilege: store.MayManage}}
	case *lang.DefineTopic:
		return []need{{privilege: store.MayManage}}
	case *lang.AlterTopic:
		if x.Public != nil {
			// It lets others write, so whoever says so must be able to.
			return []need{{privilege: store.MayManage | store.MayWrite, table: x.Name}}
		}
		return []need{{privilege: store.MayManage, table: x.Name}}
	case *lang.Drop:
		return dropNeeds(x)
	case *lang.DefineGroup:
		return groupNeeds(x.Topic, x.DeadLetter)
	case *lang.AlterGroup:
		return groupNeeds(x.Topic, x.DeadLetter)
	case *lang.DropGroup:
		return groupNeeds(x.Topic, "")
	case *lang.DefineTopicConsumer:
		n := []need{
			{privilege: store.MayManage | store.MayRead, table: x.From.Name},
			{privilege: store.MayManage | store.MayWrite, table: x.Into.Name},
		}
		if x.Overwrite {
			n = append(n, need{consumer: lang.TopicConsumer, table: x.Name, ifThere: true})
		}
		return n
	case *lang.DefineKafkaConsumer:
		return []need{{privilege: store.MayManage}, {privilege: store.MayWrite, table: x.Into.Name}}
	case *lang.ResumeConsumer:
		return []need{{consumer: x.Kind, table: x.Name}}
	}
	return userNeeds(statement)
}

func dropNeeds(x *lang.Drop) []need {
	switch x.Kind {
	case lang.Namespace:
		return []need{{owner: true, on: lang.Store}}
	case lang.Database:
		return []need{{owner: true, on: lang.Namespace}}
	case lang.TopicConsumer, lang.KafkaConsumer:
		return []need{{consumer: x.Kind, table: x.Name}}
	}
	return []need{{privilege: store.MayManage, table: x.Name}}
}

// groupNeeds is what a group's definition needs. A group shows its messages in its
// dead letter topic, so whoever names one must be able to read and to write.
func groupNeeds(topic, deadLetter string) []need {
	if deadLetter == "" {
		return []need{{privilege: store.MayManage, table: topic}}
	}
	return []need{
		{privilege: store.MayManage | store.MayRead, table: topic},
		{privilege: store.MayWrite, table: deadLetter},
	}
}

func userNeeds(statement lang.Statement) []need {
	on := lang.Store
	switch x := statement.(type) {
	case *lang.DefineUser:
		on = x.On
	case *lang.AlterUser:
		on = x.On
	case *lang.DropUser:
		on = x.On
	case *lang.Grant:
		on = lang.Database
	}
	return []need{{owner: true, on: on}}
}

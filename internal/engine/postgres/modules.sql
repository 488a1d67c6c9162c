-- Who takes the events of modules' subscriptions (internal/deploy, catalog.go):
-- records of two collections whose keys are subscription/verb.
CREATE OR REPLACE VIEW {{schema}}.module_records AS
SELECT d.space_id, d.name AS collection,
       CASE WHEN get_byte(r.key, 0) = 114 AND length(r.key) > 8 AND get_byte(r.key, 5) = 32 THEN
           convert_from(substring(r.key from 7 for length(r.key) - 8), 'UTF8') END AS key
FROM (
    SELECT space_id,
           CASE WHEN get_byte(key, 0) = 84 THEN convert_from(substring(key from 2), 'UTF8') END AS name,
           CASE WHEN position('\x624944'::bytea in value) > 0 THEN
               {{cbor "value" "position('\\x624944'::bytea in value) + 2"}} END AS table_id
    FROM {{schema}}.entries
    WHERE space_id > 0
      AND key IN ('\x54'::bytea || convert_to('topic_subscribers', 'UTF8'), '\x54'::bytea || convert_to('topic_mappers', 'UTF8'))
) AS d
-- The key of a record whose identity is a text: its table, 32, the text, and two
-- bytes that end it.
JOIN {{schema}}.entries AS r ON r.space_id = d.space_id
    AND r.key >= decode('72' || lpad(to_hex(d.table_id), 8, '0') || '20', 'hex')
    AND r.key < decode('72' || lpad(to_hex(d.table_id), 8, '0') || '21', 'hex');

-- A sink of a subscription, as module.sink; the subscription is the name of a
-- group in topic_subscriptions.
CREATE OR REPLACE VIEW {{schema}}.topic_subscribers AS
SELECT r.space_id, b.namespace, b.name AS database, split_part(r.key, '/', 1) AS subscription, split_part(r.key, '/', 2) AS sink_ref
FROM {{schema}}.module_records AS r
JOIN {{schema}}.databases AS b ON b.space_id = r.space_id
WHERE r.collection = 'topic_subscribers';

-- A mapper of a subscription, as module.mapper, and the topic that takes what it
-- returns.
CREATE OR REPLACE VIEW {{schema}}.topic_mappers AS
SELECT r.space_id, b.namespace, b.name AS database, split_part(r.key, '/', 1) AS input_subscription, split_part(r.key, '/', 2) AS verb_ref,
       split_part(r.key, '/', 3) AS output_topic
FROM {{schema}}.module_records AS r
JOIN {{schema}}.databases AS b ON b.space_id = r.space_id
WHERE r.collection = 'topic_mappers';

"""Bounds on what the server, and our client, hold and do at a time: each with its reason, package by package.

Sizes are bytes and end in `_BYTES` or `_BYTES_MAX`; times end in their unit. Not here: what a configuration key says,
what a format can hold, which stands with the format, and how long a step of a long work is, which stands with the work.
How they depend on each other is checked at the end.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
SECOND_NS = 1_000_000_000
MILLISECOND_NS = SECOND_NS // 1000

# ------------------------------------------------------------------ raft: one group

RAFT_APPEND_BYTES_MAX = 256 * KIB
"""Entries of one append message: keeps one group from hogging a route."""

RAFT_INFLIGHT_APPENDS_MAX = 256
RAFT_INFLIGHT_BYTES_MAX = 8 * MIB
"""Unanswered appends to one follower: what a slow one may hold in buffers along the way."""

RAFT_UNCOMMITTED_BYTES_MAX = 64 * MIB
"""Proposals waiting for a quorum; more are refused."""

RAFT_APPLY_BYTES_MAX = 4 * MIB
"""Committed entries handed to the host and not yet applied."""

RAFT_APPLY_BACKLOG_MAX = 100_000
"""Committed entries not yet applied; beyond it a leader refuses proposals."""

RAFT_CACHE_BYTES_MAX = 8 * MIB
"""Newest entries kept in memory per group, when no one needs more."""

RAFT_SNAPSHOT_CHUNK_BYTES = 128 * KIB
"""One part of a snapshot in flight."""

RAFT_READS_PENDING_MAX = 10_000
"""Reads waiting for a quorum; more are refused."""

# ------------------------------------------------------------------ subjects

SUBJECT_BYTES_CACHED_MAX = 256
"""Longer subjects are looked up anew for each message, so that caches, which are counted in entries, stay small."""

MATCHED_SUBJECTS_MAX = 100_000
"""Subjects of which a matcher remembers whether its patterns match: 50 bytes each, since an index has the names."""

EXPRESSION_PATTERNS_MAX = 32
"""Patterns that a matcher makes a regular expression of, which tries one after the other: more are faster as a tree."""

# ------------------------------------------------------------------ auth

REPLY_GRANTS_MAX = 4096
"""Reply subjects a connection with response permissions may have open (nats-server prunes from this number on)."""

# ------------------------------------------------------------------ runtime: the disk of the machine

DISK_WORKERS_MAX = 8
"""Reads and name operations under way at once: enough for a deep device queue, few enough to keep the pool small."""

WRITE_AHEAD_BYTES_MAX = 64 * KIB
"""What a sync has to write at most for the reactor's thread to have it begun: far from what fills a device's queue."""

WRITE_AHEAD_SYNC_NS_MAX = 20 * MILLISECOND_NS
"""Nor has it, when the last sync took longer: others have filled the queue, and it would wait as long as they do."""

# ------------------------------------------------------------------ storage: the journal

JOURNAL_QUEUE_BYTES_MAX = 128 * MIB
"""Bytes awaiting a sync: what a slow disk may hold back before publishers are told to wait (as the stream ingest)."""

JOURNAL_QUEUE_SPARE_BYTES = 128 * MIB
"""What may wait beyond it of that for which nobody can be told to wait: the rest of a read, what acknowledging and
expiring removes, what streams take from each other."""

JOURNAL_BATCH_BYTES_MAX = 4 * MIB
"""One write and sync: large enough for the device's bandwidth, small enough that a sync takes milliseconds."""

JOURNAL_PART_BYTES = 64 * MIB
"""One preallocated file of the journal: what a start has to read per file that is still needed."""

JOURNAL_PART_BYTES_MAX = 120 * MIB
"""What a journal part is meant to hold: a record can look back 128 MiB to what was durable."""

JOURNAL_UNSYNCED_BYTES_MAX = 16 * MIB
"""With a sync interval: written and not synced. Beyond it a sync is begun, which nobody waits for."""

LEASE_SEQUENCES_MIN = 1024
"""With a sync interval: how many sequences a stream may use before the journal is synced, and so how many a loss of
power can cost."""

LEASE_SEQUENCES_MAX = 65_536
"""The same of a stream that is published to as fast as can be."""

LEASE_NS = 100 * MILLISECOND_NS
"""How long half a lease lasts at the present rate: many times what a sync takes."""

# ------------------------------------------------------------------ storage: stream logs

STREAM_OPEN_SEGMENTS_MAX = 8
"""Clean segments that a stream keeps open for reading: descriptors are few and streams are many."""

STREAM_REWRITE_BYTES_MAX = 64 * MIB
"""Segments that one checkpoint packs or encrypts anew: as much as a journal part brings, so that it keeps up."""

# ------------------------------------------------------------------ broker: the reactor

READ_BYTES = 256 * KIB
"""The read buffer that all connections of a reactor share: large enough that a pass is worth its system calls."""

OWN_BODY_BYTES = 32 * KIB
"""An operation that is received in parts gets a buffer of its own from this size on, and one of at least this size."""

BODY_AHEAD = 16
"""Such a buffer has room for so many times what has come: a control line alone does not make the server hold a
payload, and of what is copied when it grows there is a fifteenth of the payload at most."""

PASS_BYTES = 2 * MIB
"""Input handled between two checkpoints of the reactor: a few milliseconds."""

PASSES_PER_CHECKPOINT = 16
"""Passes over ready connections before other tasks get their turn."""

IDLE_LOOKS = 50
"""How often an idle reactor looks for traffic before it waits: some 25 microseconds of a processor, in which the
other half of a request usually arrives, and less than a wake-up takes."""

IDLE_TRIAL = 16
"""So many looks in vain after a lucky one end them; then one idle moment in so many tries anew."""

DELIVERIES_PER_FEED_MAX = 65_536
"""After so many deliveries (or as much other work) for one connection the others get their turn: a few milliseconds
of deliveries, some tens of milliseconds of subscriptions."""

SLOW_WORK = 256
"""What the interpreter does for one operation (control lines, subjects not known yet, what the client is told of its
publishes) counts as so many deliveries: it takes as long as 64 of them, or as several hundred where a line is logged.
"""

SETTLE_ROUNDS_MAX = 16
"""Rounds of internal clients answering each other inside one settling; what is left waits for the next."""

ACCEPTS_PER_PASS_MAX = 64
"""New connections per listener and pass, so that a storm of them does not stop the traffic."""

ACCEPT_PAUSE_NS = SECOND_NS
"""How long a listener rests when the process has no descriptor left."""

# ------------------------------------------------------------------ broker: what waits to be written

VIEW_BYTES = 4 * KIB
"""From this size on a message is referenced, not copied, per target: two more entries of a vectored write cost
about as much as that copy."""

STAGE_BYTES = 64 * KIB
"""The buffer that gathers small messages for one connection."""

FLUSH_BYTES = STAGE_BYTES
"""What has gathered for one connection and is written before the pass ends."""

SMALL_STAGE_BYTES = 2 * KIB
"""A first stage is small, so that a message for thousands of subscribers does not touch thousands of large ones."""

STAGES_KEPT_MAX = 64
SMALL_STAGES_KEPT_MAX = 1024
"""Free stages that a reactor keeps: 4 and 2 MiB."""

BUFFERS_PER_WRITE_MAX = 128
"""Entries of one vectored write."""

# ------------------------------------------------------------------ broker: connections

CONTROL_LINE_BYTES_MAX = 128 * KIB
"""A larger `max_control_line` is cut down to this: half the read buffer, so that a line always fits."""

SIZE_DIGITS_MAX = 9
"""Of a size in a control line, as in nats-server."""
PAYLOAD_SIZE_MAX = 10**SIZE_DIGITS_MAX - 1
"""What "no limit" comes to."""

LINGER_NS = SECOND_NS
"""A closed connection's peer has so long to take the last bytes, its -ERR among them."""

STALL_NS = 2 * MILLISECOND_NS
"""A client that publishes to one that has fallen behind is not read for so long, each time."""

STALL_PER_READ_NS = 10 * MILLISECOND_NS
"""...and in sum for what one read brought, so that a slow consumer does not slow its publishers for ever."""

FIRST_PING_NS = 2 * SECOND_NS
"""The first PING to a client comes early, to learn the round-trip time."""

RTT_REFRESH_NS = 3600 * SECOND_NS
"""A round-trip time is measured anew after so long even if there is traffic."""

CLOSE_STEP_NS = SECOND_NS
"""At most so long between two clients when all of them are closed one by one."""

CLOSED_SUBSCRIPTIONS_MAX = 65_536
"""Subscriptions remembered with all closed connections together; the oldest records go first."""

UNSUBSCRIBES_PER_STEP_MAX = 1024
"""Subscriptions of a closed connection that are taken out before others get their turn: a few milliseconds."""

# ------------------------------------------------------------------ broker: plans

PLANS_MAX = 32_768
"""Publish plans kept per account, by subject: a few hundred bytes each, apart from their targets."""

PLAN_TARGETS_MAX = 512 * KIB
"""Targets of all those plans, one a subject and subscriber: 200 bytes each. Beyond it all plans start anew."""

PLAN_TARGETS_KEPT = 16 * KIB
"""Of those so many at least may belong to plans that are out of date."""

PLAN_CELLS_MAX = 4096
"""First tokens told apart when plans go out of date, per account; beyond it all start anew."""

PLAN_CELL_BYTES_MAX = 64
"""First tokens that begin with the same so many bytes go out of date together."""

FAMILIES_MAX = 4096
"""Prefixes whose subjects are served by one plan, per account."""

FAMILY_SUBJECTS_MAX = 4096
"""Subjects so served that are remembered, per account, to know one that comes again."""

FAMILY_TARGETS_MAX = 16
"""Subscriptions of such a plan: each is told the subject at every message."""

# ------------------------------------------------------------------ jetstream: the server

JETSTREAM_CLOSE_NS_MAX = 20 * SECOND_NS
"""What an orderly end may take for checkpoints; the journal has everything anyway."""

STORES_MEASURED_NS = 100 * MILLISECOND_NS
"""How often all streams are added up for the bounds on the stores: what may come in too much."""

SPARSE_WARNING_NS = 30 * SECOND_NS
"""How often the log is told at most that a disk, or the server's storage, is full."""

READER_PATIENCE_NS = 10 * SECOND_NS
"""How long others may have to wait behind what waits for a reader: then it is sent, and may get the reader cut off."""

DIRECT_GET_SUBJECTS_MAX = 1024
"""Subjects whose last messages one direct get may ask for (ADR-31)."""

DIRECT_GETS_MAX = 10_000
"""Direct gets of one account that wait for the disk or for their reader; more are told 429. As many as API requests."""

# ------------------------------------------------------------------ jetstream: configurations

ASSET_NAME_BYTES_MAX = 255
ASSET_DESCRIPTION_BYTES_MAX = 4 * KIB
ASSET_METADATA_BYTES_MAX = 128 * KIB
"""Of streams and of consumers: nats-server's bounds."""

STREAM_SEQUENCE_MAX = 2**63 - 1
"""No stream begins behind it, nor is it restored from there, nor does it mirror what is: to leave the 64 bits that a
sequence takes, as many messages again would have to come."""

# ------------------------------------------------------------------ jetstream: streams

MESSAGE_HEADERS_BYTES_MAX = 64 * KIB - 1
"""Header block of a stored message."""

STREAM_GATHERED_BYTES = 1 * MIB
"""Stored messages of one stream that gather in memory before they are written to their segment file; they are in the
journal already."""

STREAM_UNWRITTEN_BYTES_MAX = 8 * MIB
"""...and that wait there because the disk is slow or full: beyond it nothing is admitted until they are written."""

STREAM_FULL_PAUSE_NS = SECOND_NS
"""A stream that found no space refuses publishes for so long before it tries again."""

RECENT_BYTES_MAX = 8 * MIB
"""Memory for the newest messages of one stream, until its checkpoint: consumers mostly want what has just come."""

EXPIRE_MSGS_PER_ENTRY_MAX = 10_000
"""Messages that one log entry removes for their age, so that applying it stays short."""

COUNTER_TOTALS_MAX = 10_000
"""Counter totals kept in memory per stream; others are read from the subject's last message."""

MATCH_CACHE_ENTRIES_MAX = 1024
"""Subjects of which a stream remembers which of its consumers want them."""

MATCHERS_MAX = 512
"""Filters of which a stream keeps what they match; a matcher is at most as large as MATCHED_SUBJECTS_MAX lets it be."""

REPUBLISHINGS_MAX = 64
"""How often one message is published again by streams that republish into each other."""

# ------------------------------------------------------------------ jetstream: batches of publishers

BATCH_ID_BYTES_MAX = 64
"""Length of a batch id (ADR-50)."""

BATCH_IDLE_NS_MAX = 10 * SECOND_NS
"""An open batch without a message for so long is given up (ADR-50)."""

ATOMIC_BATCH_MSGS_MAX = 1000
"""Messages of one atomic batch (ADR-50)."""

ATOMIC_BATCHES_PER_STREAM_MAX = 50
"""Open atomic batches of one stream (ADR-50)."""

ATOMIC_BATCHES_PER_SERVER_MAX = 1000
"""Open atomic batches of all streams (ADR-50)."""

ATOMIC_STAGED_BYTES_MAX = 128 * MIB
"""Bytes of all open atomic batches of one stream: they wait in memory, and 50 times 1000 messages may be large."""

FAST_BATCHES_PER_STREAM_MAX = 1000
"""Open fast batches of one stream."""

FAST_BATCHES_PER_SERVER_MAX = 50_000
"""Open fast batches of all streams."""

FAST_BATCH_WINDOW_MSGS_MAX = 500
"""Messages between two acks, shared by the open fast batches of a stream."""

FAST_BATCH_WINDOW_MSGS = 10
"""Messages between two acks where the publisher names no number."""

# ------------------------------------------------------------------ jetstream: mirrors and sources

SOURCING_BATCH_MSGS_MAX = 1000
SOURCING_BATCH_BYTES_MAX = 4 * MIB
"""What a mirror or source reads of its origin before it stores it."""

SOURCING_WAITING_BYTES_MAX = 64 * MIB
"""What an origin reached by messages has sent and is not stored: twice the largest window of flow control, which counts
subjects and replies as well. Who sends more is cut off."""

# ------------------------------------------------------------------ jetstream: consumers

CONSUMER_FLOW_WINDOW_BYTES = 2 * MIB
"""Flow-control window at the beginning; each answer doubles it."""

CONSUMER_FLOW_WINDOW_BYTES_MAX = 32 * MIB
"""The largest flow-control window."""

CONSUMER_RATE_BURST_BYTES = 1 * MIB
"""What a rate-limited consumer may send at once: the largest ordinary message."""

CONSUMER_DELIVERIES_PER_PASS_MAX = 500
"""Messages one consumer sends before others get their turn."""

CONSUMER_BYTES_PER_PASS_MAX = 8 * MIB
"""...and about how many bytes: what is loaded and queued before anything of it is written."""

CONSUMER_OPS_UNWRITTEN_MAX = 1000
"""Deliveries and acks of one consumer that may wait for its log, when nobody waits for their confirmation."""

CONSUMER_OPS_DELAY_NS = 250 * MILLISECOND_NS
"""...and how long: what a crash makes a consumer deliver again."""

CONSUMER_HELD_MSGS_MAX = 10_000
"""Messages that a bound per subject may hold back before the consumer stops looking further ahead."""

PULL_BODY_BYTES_KNOWN = 256
PULL_BODIES_KNOWN = 256
"""Bodies of pull requests, so many of at most so many bytes, that are not parsed again."""

# ------------------------------------------------------------------ jetstream: dead letters

CONSUMER_LETTERS_MAX = 10_000
"""Dead letters of one consumer that no stream has stored yet; it delivers nothing further until there are fewer."""

CONSUMER_LETTERS_IN_FLIGHT_MAX = 64
"""Dead letters of one consumer that are sent without waiting for an answer in between."""

CONSUMER_LETTER_REASON_BYTES_MAX = 1000
"""What is kept of the reason that a client gave for a termination."""

CONSUMER_LETTER_ANSWER_NS = 5 * SECOND_NS
"""How long the answer of the stream that stores a dead letter is awaited."""

CONSUMER_LETTER_PAUSE_NS = SECOND_NS
"""After a dead letter was not stored; doubled each time..."""

CONSUMER_LETTER_PAUSE_NS_MAX = 30 * SECOND_NS
"""...up to this."""

# ------------------------------------------------------------------ jetstream: backups

BACKUPS_MAX = 32
"""Backups and restores of one server under way at once: each may hold what waits for the other side in memory."""

BACKUP_ENTRY_BYTES_MAX = 72 * MIB
"""One message or file in an archive: the largest payload that `max_payload` can be set to, and headers."""

BACKUP_NAME_BYTES_MAX = 64 * KIB
"""A subject or the name of a consumer in an archive."""

BACKUP_CHUNK_BYTES = 128 * KIB
BACKUP_CHUNK_BYTES_MIN = KIB
BACKUP_CHUNK_BYTES_MAX = MIB
"""Size of what a backup sends at a time: where the client names none, and how far it may go."""

BACKUP_WINDOW_BYTES = 8 * MIB
BACKUP_WINDOW_BYTES_MIN = KIB
BACKUP_WINDOW_BYTES_MAX = 32 * MIB
"""What a backup has sent and the client has not confirmed."""

BACKUP_INTEREST_NS_MAX = 2 * SECOND_NS
"""How long a backup waits for somebody to listen."""

BACKUP_STALL_NS_MAX = 5 * SECOND_NS
"""A backup without a confirmation, or a restore without a chunk, for so long is given up."""

RESTORE_WAITING_BYTES_MAX = 32 * MIB
"""Chunks of a restore that came and are not stored; a client that sends more without waiting loses the restore."""

RESTORE_UNWRITTEN_BYTES_MAX = 8 * MIB
"""Restored messages that are not in their files yet, after which a restore waits for the disk."""

RESTORE_CONSUMERS_MAX = 100_000
"""Consumers of one restored stream: they are held in memory until the stream is complete."""

# ------------------------------------------------------------------ edges: HTTP monitoring

HTTP_CONNECTIONS_MAX = 256
"""Monitoring connections at once, of which one without a request makes room for another. Probes and dashboards need a
handful."""

HTTP_REQUEST_HEAD_BYTES_MAX = 16 * KIB
"""Request line and headers of one request; larger ones are answered 431 and closed."""

HTTP_REQUEST_BODY_BYTES_MAX = 64 * KIB
"""No endpoint takes a body: a small one is read and dropped, a larger one ends the connection."""

HTTP_HEAD_TIMEOUT_NS = 5 * SECOND_NS
"""From the first byte of a request to its last header (nats-server's ReadHeaderTimeout)."""

HTTP_IDLE_TIMEOUT_NS = 60 * SECOND_NS
"""A kept-alive connection without a request is closed, so that forgotten ones do not use up the bound."""

# ------------------------------------------------------------------ client

CLIENT_CONTROL_LINE_BYTES_MAX = MIB
"""Longest line our own client takes from a server: an INFO names every server of a large cluster."""

CLIENT_PAYLOAD_BYTES_MAX = 64 * MIB
"""Largest message our own client takes from a server: the most that `max_payload` can be set to sensibly."""

CLIENT_PENDING_BYTES_MAX = 8 * MIB
"""Outgoing bytes a client holds, connected or not, before `publish` waits: seconds of traffic across a reconnect."""

CLIENT_YIELD_BYTES = 128 * KIB
"""Outgoing bytes after which `publish` lets other tasks run: bounds the time between scheduler steps."""

CLIENT_READ_BYTES = 256 * KIB
"""The read buffer of one client connection."""

CLIENT_READS_PER_WAKE_MAX = 8
"""Reads before consumers get their turn, so that a fast server cannot fill their queues unseen."""

CLIENT_SUBSCRIPTION_PENDING_COUNT_MAX = 512 * 1024
CLIENT_SUBSCRIPTION_PENDING_BYTES_MAX = 64 * MIB
"""Default bounds of one subscription's queue, as NATS clients have them: a pause of about a second at full speed."""

CLIENT_REPLIES_PENDING_MAX = 64 * 1024
"""Replies of one `request_many` that wait to be taken; beyond it the newest are dropped."""

CLIENT_CLOSE_GRACE_NS = 2 * SECOND_NS
"""How long an orderly close waits for the server's word that everything published has arrived."""

CLIENT_SUBJECTS_CACHED_MAX = 4096
"""Publish subjects whose checked and encoded form is kept."""

CLIENT_PULL_STATUSES_MAX = 64
"""Statuses beside its messages that a pull subscription has room for: heartbeats to a reader that is slow."""

CLIENT_PULL_RETRY_NS = SECOND_NS // 4
"""How long a reader waits before it asks again a server that did not answer."""

CLIENT_OBJECT_WINDOW_BYTES = 8 * MIB
CLIENT_OBJECT_CHUNKS_AHEAD_MAX = 500
"""Chunks of an object on their way, to the server or from it: enough to keep a fast network and a disk busy."""

CLIENT_BACKUP_DESCRIPTION_BYTES_MAX = 16 * MIB
"""The file that describes a backup: a configuration, and the list of deleted messages at the worst."""

CLIENT_PRESENT_LOOK_NS = SECOND_NS
"""How long a reader of what is there now waits for the next piece before it asks how much is left."""

# ------------------------------------------------------------------ server: configuration

CONFIG_NESTING_MAX = 100
"""Brackets (and variables that hold bracketed values) inside one another in a configuration file. Real files
need about six; the bound keeps everything that walks the tree clear of the recursion limit."""

# ------------------------------------------------------------------ testing

TESTING_LOG_LINES_MAX = 10_000
"""Log lines that an embedded server keeps for the report of a failed test."""

TESTING_WAIT_S = 30
"""How long starting or stopping an embedded server may take before it counts as hung."""

# ------------------------------------------------------------------ how they depend on each other

assert 2 * CONTROL_LINE_BYTES_MAX <= READ_BYTES, "a control line must fit beside what was read before"
assert OWN_BODY_BYTES <= READ_BYTES, "what is kept of an operation must fit into the read buffer"
assert VIEW_BYTES <= STAGE_BYTES, "what is copied must fit into a stage"
assert SMALL_STAGE_BYTES < STAGE_BYTES
assert STALL_NS <= STALL_PER_READ_NS
assert PLAN_TARGETS_KEPT <= PLAN_TARGETS_MAX
assert JOURNAL_BATCH_BYTES_MAX <= JOURNAL_PART_BYTES <= JOURNAL_PART_BYTES_MAX
assert JOURNAL_BATCH_BYTES_MAX <= JOURNAL_QUEUE_BYTES_MAX
assert LEASE_SEQUENCES_MIN <= LEASE_SEQUENCES_MAX
assert STREAM_GATHERED_BYTES <= STREAM_UNWRITTEN_BYTES_MAX
assert ATOMIC_BATCHES_PER_STREAM_MAX <= ATOMIC_BATCHES_PER_SERVER_MAX
assert FAST_BATCHES_PER_STREAM_MAX <= FAST_BATCHES_PER_SERVER_MAX
assert FAST_BATCH_WINDOW_MSGS <= FAST_BATCH_WINDOW_MSGS_MAX
assert CONSUMER_FLOW_WINDOW_BYTES <= CONSUMER_FLOW_WINDOW_BYTES_MAX
assert 2 * CONSUMER_FLOW_WINDOW_BYTES_MAX <= SOURCING_WAITING_BYTES_MAX, "no window may look like an origin that floods"
assert BACKUP_CHUNK_BYTES_MIN <= BACKUP_CHUNK_BYTES <= BACKUP_CHUNK_BYTES_MAX <= BACKUP_WINDOW_BYTES
assert BACKUP_WINDOW_BYTES_MIN <= BACKUP_WINDOW_BYTES <= BACKUP_WINDOW_BYTES_MAX

//! Every limit of the agent, named once: nothing that comes from outside may grow past one of these.

use std::time::Duration;

/// Longest settings file or kubeconfig, bytes.
pub const SETTINGS_FILE_BYTES: usize = 256 * 1024;
/// Longest list of events that a timeline is drawn from.
pub const EVENTS_FILE_BYTES: usize = 16 * 1024 * 1024;
/// Nodes of one YAML document after aliases: past this it is a bomb, not a setting.
pub const YAML_NODES: usize = 10_000;
/// Nesting of one YAML document.
pub const YAML_DEPTH: usize = 32;
/// Problems of one settings file that are told at once.
pub const PROBLEMS: usize = 100;
/// CPUs that `reservedSystemCPUs` can name; the kernel's own limit on its largest machines.
pub const CPUS: u32 = 8192;
/// Longest certificate, key or token file, bytes.
pub const CREDENTIAL_FILE_BYTES: usize = 64 * 1024;
/// Longest block of reply headers with the interim replies (1xx) before it, and longest line of a chunked body, bytes.
pub const REPLY_HEADER_BYTES: usize = 16 * 1024;
/// Longest reply body with a Node, bytes: one with fifty images and every label allowed is about 60 KiB.
pub const NODE_BODY_BYTES: usize = 1024 * 1024;
/// Bytes of a reply with an object's metadata that are waited for: its uid and its version stand at the beginning, and a
/// new connection costs less than the rest of a longer one.
pub const METADATA_BODY_BYTES: usize = 8 * 1024;
/// Bytes from the start of such a reply in protobuf to the end of the version, without the name: at most 124, of which the uid is 36
/// and the version 20.
pub const METADATA_BEGINNING_BYTES: u32 = 140;
/// Longest reply body of any other kind, bytes: no more annotations than these fit an object.
pub const REPLY_BODY_BYTES: usize = 256 * 1024;
/// What a peer may send during one exchange, TLS and all that stands around a body included, bytes.
pub const EXCHANGE_BYTES: usize = 2 * NODE_BODY_BYTES;
/// Table of the fields that were sent over HTTP/2, bytes; a peer may ask for less.
pub const HTTP2_TABLE_BYTES: usize = 4096;
/// Fields of one answer over HTTP/2, counted as in its `SETTINGS_MAX_HEADER_LIST_SIZE`, bytes.
pub const HTTP2_FIELDS_BYTES: usize = 16 * 1024;
/// A header block before it is decoded, bytes, and the frames that it may come in.
pub const HTTP2_BLOCK_BYTES: usize = 32 * 1024;
pub const HTTP2_BLOCK_FRAMES: usize = 16;
/// Streams of one HTTP/2 connection that are open at once; a peer may allow fewer.
pub const HTTP2_STREAMS: usize = 16;
/// Bodies that wait for the peer's windows, of all streams, bytes.
pub const HTTP2_UNSENT_BYTES: usize = NODE_BODY_BYTES;
/// Frames of HTTP/2 in a row that say nothing (SETTINGS, PING, windows, empty or unknown ones), without a request of ours between.
pub const HTTP2_IDLE_FRAMES: u32 = 1000;
/// Frames that a peer of HTTP/2 makes us send, while none of them could be sent.
pub const HTTP2_REPLIES: usize = 100;
/// Interim answers (1xx) to one request over HTTP/2.
pub const HTTP2_INTERIM_ANSWERS: u32 = 8;
/// Memory that each buffer of a connection keeps when a longer message has passed.
pub const CONNECTION_KEPT_BYTES: usize = 4096;
/// What a peer may send of an answer over HTTP/2 before more is asked for, bytes.
pub const STREAM_WINDOW_BYTES: u32 = 64 * 1024 - 1;
/// The same of a watch, which has no end: what half of it brought is asked for again.
pub const WATCH_WINDOW_BYTES: u32 = 32 * 1024;
/// One event of a watch, bytes; the first, with its headings, has 3.6 KB.
pub const WATCH_EVENT_BYTES: usize = 16 * 1024;
/// Events of a watch that may come at once; in the long run one for each look at the board.
pub const WATCH_EVENTS_AT_ONCE: u32 = 30;
/// How long the server lets one watch go on; seconds.
pub const WATCH_SECONDS: u32 = 24 * 3600;
/// How long an answer over HTTP/2 may not begin while it may bring no content: then it may, as there are boxes on the way that
/// send no head alone.
pub const ANSWER_WITHOUT_WINDOW: Duration = Duration::from_secs(2);
/// Of what lies in a socket unread while nobody waits for an answer, at most: more than the answer to a renewal (62 bytes, or 311 with the
/// Lease's metadata), less than most events of a watch; a shorter one lowers it.
pub const UNREAD_BYTES: usize = 320;
/// Reads of one descriptor between two looks at the clock and at everything else.
pub const READS_PER_TURN: usize = 16;
/// Messages of the kernel about the network that are dropped at once, as one look answers them all.
pub const NETWORK_MESSAGES: usize = 1024;
/// API servers that a board is told to join.
pub const JOIN_SERVERS: usize = 16;
/// Addresses of a control plane that are asked when none of those servers answers (JOIN-7).
pub const LAST_RESORTS: usize = 4;
/// Hashes of CAs that a board may meet.
pub const CA_HASHES: usize = 8;
/// CA certificates that are trusted at once (CA-2).
pub const CA_CERTIFICATES: usize = 8;
/// Longest answer of a server that is not yet trusted, bytes: with two tokens a cluster-info has 2 KB (JOIN-1).
pub const CLUSTER_INFO_BYTES: usize = 64 * 1024;
/// Labels from settings.
pub const NODE_LABELS: usize = 256;
/// Taints from settings.
pub const TAINTS: usize = 64;
/// cloud-init's instance data, bytes.
pub const INSTANCE_DATA_BYTES: usize = 256 * 1024;
/// Extended resources from settings.
pub const EXTENDED_RESOURCES: usize = 32;
/// Patterns of paths that count one of them.
pub const RESOURCE_PATTERNS: usize = 8;
/// Longest pattern, bytes.
pub const RESOURCE_PATTERN_BYTES: usize = 256;
/// Names in folders that are read to count one of them, at each look.
pub const RESOURCE_NAMES: usize = 4096;
/// Addresses of the Node.
pub const NODE_ADDRESSES: usize = 32;
/// Events that wait to be sent; the oldest is dropped first.
pub const WAITING_EVENTS: usize = 64;
/// How far ahead the end of an announced absence may be.
pub const LONGEST_ABSENCE: Duration = Duration::from_secs(366 * 24 * 3600);
/// Longest reason of one, bytes: as much as a record holds.
pub const ABSENCE_REASON_BYTES: usize = 64;
/// Records of the journal that wait to be sent; the middle of each series is dropped first.
pub const WAITING_RECORDS: usize = 256;
/// Smallest file of the journal, bytes, and so its smallest quota.
pub const JOURNAL_LEAST_BYTES: usize = 16 * 1024;
/// Largest file of the journal, bytes, and so its largest quota.
pub const JOURNAL_MOST_BYTES: usize = 1024 * 1024;
/// How often, on average, a checksum covers each byte of the journal while frames are searched in a damaged file.
pub const JOURNAL_CHECKSUM_PASSES: usize = 4;
/// Text of a server, a proxy or a certificate, characters: cut where it is read.
pub const FOREIGN_TEXT_CHARS: usize = 256;
/// One text of a Node or Lease that was read, bytes: what the agent writes is no longer, which are the names of its labels at most.
pub const OBJECT_TEXT_BYTES: usize = 4096;
/// One list or map of a Node or Lease that was read, bytes: once for what the agent may write, once for the rest.
pub const OBJECT_LIST_BYTES: usize = 16 * 1024;
/// Tries of one status run or one Lease renewal, back to back (SYN-1, LSE-7).
pub const TRIES_PER_RUN: u32 = 5;
/// Tries of one event (EVT-7).
pub const TRIES_PER_EVENT: u32 = 12;
/// Repeats of one request because the server said Retry-After (TR-5); any more count as failures.
pub const RETRY_AFTER_IN_A_ROW: u32 = 10;
/// Kinds of failures in a row that are remembered, so that two that alternate are not logged each time.
pub const KINDS_OF_FAILURE: usize = 8;
/// Requests in any minute, whatever is answered to them; more only where the settings ask for heartbeats more often than by
/// default.
pub const REQUESTS_PER_MINUTE: u32 = 60;
/// Requests that may follow each other without a pause; the rest of the minute's are spread over it.
pub const REQUESTS_AT_ONCE: u32 = 12;
/// Of these, so many are reserved for the Lease.
pub const REQUESTS_OF_LEASE: u32 = 2;
/// Of those of a minute, so many may be sent a second time automatically, because the connection was dead.
pub const REPEATS_PER_MINUTE: u32 = 6;
/// Longest bundle of the system's trusted roots, bytes; Debian's has 220 KiB.
pub const TRUST_BUNDLE_BYTES: usize = 2 * 1024 * 1024;
/// Longest that a report waits for the look at the board that it begins with; what the shell waits for of a disk or of DNS
/// is less.
pub const LOOK_DEADLINE: Duration = Duration::from_secs(10);
/// Addresses of one server name that are tried.
pub const SERVER_ADDRESSES: usize = 8;
/// Addresses of one answer of DNS that are looked at; a message has room for four thousand.
pub const LOOKED_UP_ADDRESSES: usize = 256;
/// Look-ups of names in flight: libc's cannot be cancelled, and each that hangs holds a thread.
pub const NAME_LOOKUPS: usize = 2;
/// One request, from the look-up of the name to the last byte of the answer (TR-1).
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(10);
/// Least silence that a connection may have died of: no NAT forgets one of TCP sooner.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(15);
/// Longest a sent segment stays unacknowledged before the kernel gives the connection up; ms.
pub const TCP_USER_TIMEOUT_MS: u32 = 15_000;
/// One attribute of sysfs, bytes: `show` fills one page at the most.
pub const ATTRIBUTE_BYTES: usize = 4096;
/// One table of procfs, bytes: a router with every route of the Internet has 100 MiB of them, its default route first.
pub const TABLE_BYTES: usize = 1024 * 1024;
/// Memory of one machine is below this, bytes: no processor addresses more.
pub const MEMORY_BYTES: u64 = 1 << 52;
/// The last judgement is kept at least this long after its source could be read.
pub const JUDGEMENT_KEPT: Duration = Duration::from_secs(60);
/// A condition of the board that changed does not change again for so long, whatever its sensor says.
pub const CONDITION_CHANGE_PERIOD: Duration = Duration::from_secs(60);
/// Interfaces of which the carrier is watched: those that a default route led through, and what is below them.
pub const UPLINKS: usize = 32;
/// One record of the kernel's log, bytes: a line of at most 1 KiB, of which each byte may be written as four, and more about it.
pub const KERNEL_LOG_RECORD_BYTES: usize = 8192;
/// Bytes of the kernel's log that one look reads, a record with each system call; the next look reads on. The whole log of a
/// board is less: its kernel keeps 128 KiB of text, or 512.
pub const KERNEL_LOG_LOOK_BYTES: usize = 2 << 20;
/// Names of all extended resources of the settings, bytes: one annotation of the Node has them.
pub const RESOURCES_BYTES: usize = 1024;
/// Labels that say what a board is and has.
pub const FEATURE_LABELS: usize = 64;
/// The same in bytes, with the annotation that names them: half of it at most.
pub const FEATURE_LABEL_BYTES: usize = 2 * OBJECT_TEXT_BYTES;
/// One file of `features.d`, bytes: as node-feature-discovery has it.
pub const FEATURE_FILE_BYTES: usize = 64 * 1024;
/// How many of those that could not be labels are named.
pub const FEATURES_LEFT_OUT: usize = 8;
/// Devices whose XFS has shut itself down that are kept in mind.
pub const XFS_DEVICES: usize = 16;
/// Names of one directory below the probe's root.
pub const DIRECTORY_NAMES: usize = 4096;
/// Serial numbers and MAC addresses of a board that it is not identified by.
pub const UNUSED_IDENTITIES: usize = 16;
/// Trip points of one thermal zone: the kernel had twelve for long.
pub const TRIP_POINTS: u32 = 32;
/// Symbolic links followed for one path below the probe's root, as in the kernel.
pub const SYMBOLIC_LINKS: u32 = 40;
/// Servers and proxies whose addresses are kept on disk.
pub const REMEMBERED_SERVERS: usize = 4;
/// The file they are kept in, bytes: names of 253 characters with all their addresses.
pub const REMEMBERED_SERVERS_BYTES: usize = 12 * 1024;
/// One line of the log, bytes.
pub const LOG_LINE_BYTES: usize = 4096;
/// Lines of the log for which a stream that hangs is waited for; what comes after them is lost and counted.
pub const LOG_LINES_WAITING: usize = 32;
/// Lines of the log in any minute, and the same at a verbosity of 4 and more.
pub const LOG_LINES: usize = 20;
pub const DEBUG_LOG_LINES: usize = 600;
/// Answers of one kind to signals that any minute has, even when it is full.
pub const LOG_ANSWERS: usize = 3;
/// The word of an init script for how the machine goes down, bytes.
pub const LEAVING_WORD_BYTES: u64 = 64;
/// One message of the machine's D-Bus, bytes: what is asked for has some hundred.
pub const DBUS_MESSAGE_BYTES: usize = 64 * 1024;
/// One line of its greeting, bytes.
pub const DBUS_LINE_BYTES: usize = 512;
/// Descriptors that may come along with one read of it: the most that the kernel lets any message have (`SCM_MAX_FD`).
pub const DBUS_DESCRIPTORS: usize = 253;
/// What a peer of gRPC may send of an answer before more is asked for, bytes.
pub const GRPC_WINDOW_BYTES: u32 = 64 * 1024 - 1;
/// Resources that device plug-ins may have registered, connections that register, and those that tell of devices.
pub const DEVICE_PLUGINS: usize = 16;
pub const DEVICE_PLUGINS_REGISTERING: usize = 8;
pub const DEVICE_PLUGINS_LISTENED_TO: usize = 2 * DEVICE_PLUGINS;
/// The list of one resource's devices, bytes.
pub const DEVICE_LIST_BYTES: usize = 1 << 20;
/// One message of a client of gRPC, bytes.
pub const GRPC_REQUEST_BYTES: usize = 4096;
/// Why a call of gRPC was refused, in the peer's words, bytes.
pub const GRPC_TEXT_BYTES: usize = 256;
/// One answer of a container runtime, bytes: a status has some hundred.
pub const CRI_MESSAGE_BYTES: usize = 64 * 1024;
/// Conditions, and handlers, of one that are kept.
pub const CRI_ENTRIES: usize = 32;
/// One text of its answers, bytes.
pub const CRI_TEXT_BYTES: usize = 512;
/// What it says of one image, bytes; one with more is left out.
pub const CRI_IMAGE_BYTES: usize = 16 * 1024;
/// Images of a Node: a kubelet's default. Names of each, as many as a kubelet tells.
pub const NODE_IMAGES: u32 = 50;
pub const CRI_NAMES_PER_IMAGE: usize = 5;
/// All of their names, bytes: with what each entry costs they fit [`OBJECT_LIST_BYTES`].
pub const CRI_IMAGE_NAMES_BYTES: usize = 12 * 1024;
/// One line of the control socket to the agent, bytes.
pub const CONTROL_LINE_BYTES: usize = 4096;
/// And its answer, as far as a command reads it: conditions have messages.
pub const CONTROL_ANSWER_BYTES: u64 = 65_536;
/// The status line for the service manager, bytes: less than any datagram.
pub const STATUS_LINE_BYTES: usize = 2048;

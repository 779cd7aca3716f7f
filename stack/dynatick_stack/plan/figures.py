"""The figures that plans are made of.

Times are in seconds, sizes in bytes, capacity in write units a second, prices in dollars of us-east-1, November 2026.
Each says where it comes from: *AWS*, from its documentation; *measured*, on the engine (docs/performance.md);
*assumed*, where nothing was measured.
"""

# -- AWS ---------------------------------------------------------------------------------------------------------------

NEW_TABLE_WRITE_UNITS = 4_000  # a second, of a new on-demand table, and of each of its indexes, without warm throughput
TABLE_WRITE_UNITS = 40_000  # a second: the default quota of a table, and of each of its indexes
CONCURRENT_EXECUTIONS = 1_000  # the default quota of an account and region; some new accounts have 10
STARTS, STARTS_SECONDS = 1_000, 10  # processes of one function that Lambda starts at once, and in as many seconds again
MAPPING_STARTS, MAPPING_STARTS_A_SECOND = 5, 5  # invocations of a queue at once, and more a second while it is full
MB_PER_CPU = 1_769  # of a Lambda function's memory
WRITE_UNIT_BYTES = 1_024

WRITE_UNIT = 0.625e-6
READ_UNIT = 0.125e-6
STORAGE_GB_MONTH = 0.25
GB_SECOND = 0.0000133334  # Lambda, arm64
LAMBDA_REQUEST = 0.20e-6
LOG_GB = 0.50  # CloudWatch Logs, taken in
SQS_REQUEST = 0.40e-6
QUEUE_POLLERS, QUEUE_POLL_SECONDS = 5, 20  # Lambda's, of an empty queue: long polls; their length is assumed
SENT_TOGETHER = 10  # messages of a request
STREAM_BATCH = 100  # records that Lambda gives an invocation of the scheduler, by the template
STREAM_POLL_SECONDS = 0.25  # Lambda polls each shard of a stream so often
WARM_WRITE_UNIT = 0.00065  # once, for each write unit a second above what the table or index is warm for

# -- the template's parameters -----------------------------------------------------------------------------------------

MAX_SHARDS = 256
MAX_WORKERS = 100
MAX_THREADS = 256
USUAL_THREADS = 16
USUAL_MEMORY_MB = 1_024
MIN_MEMORY_MB, MAX_MEMORY_MB = 256, 10_240
USUAL_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS = 120, 900
RETENTION_DAYS = 30
WAKE_UP_CONCURRENCY = 10
TICK_SECONDS = 60
API_EXECUTIONS = 550  # 50 ApiRequestsPerSecond, each of which may wait 10 ApiWaitSeconds, as the doctor counts

# -- the engine --------------------------------------------------------------------------------------------------------

BATCH = 25  # tasks of a claim or record
CLAIMS_AT_ONCE = 2  # of one process
IN_FLIGHT_PER_THREAD, MIN_IN_FLIGHT = 4, 100  # tasks of a process that are claimed and not recorded
CLAIM_AHEAD = 2.0  # with workers: what runs in this time is claimed
MIN_MEASURED, MAX_MEASURED = 2.0, 5.0  # until a pass knows its rate
SOON = 10.0  # what a pass can run within this time, it keeps
OUTLINE_SECONDS = 0.5  # assumed: of reading ahead, before workers are started
CPU_SECONDS = 114e-6  # measured: of a task, at a whole CPU
CPU_SECONDS_OF_OCCURRENCE = 3 * CPU_SECONDS  # assumed: it takes three statements instead of two, and a read
READ_UNITS_OF_TASK = 0.084  # measured
READ_UNITS_OF_OCCURRENCE = 1.1  # measured: its schedule is read
ROW_GROWTH = 200  # bytes; measured: 191 from insert to outcome, without a result
ENTRY_BYTES = 350  # assumed: the entry of the index, with what DynamoDB adds to row and entry
INSERTS_PER_CLIENT = 8_000  # a second; measured: 10,797 on a CPU of its own, and 8 calls at a time on AWS
SCHEDULER_RECORD_SECONDS = 43e-6  # measured: of a record of the stream, at a whole CPU
SCHEDULER_READS = 1  # measured: of an invocation of the scheduler, whatever it gets
SCHEDULER_LOG_BYTES = 1_100  # of an invocation: measured 713 of its own; START, END and REPORT, and 26 an event, by AWS
SCHEDULER_SECONDS, SCHEDULER_GB = 0.01, 0.5  # assumed: of an invocation, beside the CPU of its records

IDLE_WRITES, IDLE_READS, IDLE_SECONDS = 2, 3.7, 0.05  # measured; assumed are 5 ms for each call of shard 0's idle tick
FURTHER_WRITES, FURTHER_WRITES_TO_THE_SECOND = 0.25, 1.0  # measured: of another idle shard, which is closed seldom
FURTHER_READS, FURTHER_SECONDS = 2.4, 0.003  # the same: its polls, many at a time, and its part of their invocation
IDLE_GB = 1.0
MONTH_SECONDS = 365 * 86_400 / 12
TICKS_A_MONTH = MONTH_SECONDS / 60

# -- assumed of AWS ----------------------------------------------------------------------------------------------------

TICK_DELAY = 1.0  # from the minute to the tick's invocation; AWS promises no more than the minute
LATE_TICK = 8.0  # the same, as it was seen on an account: a plan says what it does to the last start
CALL_SECONDS = 0.01  # of a batch of claims or records
COLD_START_SECONDS = 0.9  # of the processor, with its imports; those that poll idle shards each minute are warm
START_SECONDS = 0.05  # from an asynchronous invocation to its beginning
POLL_SECONDS = 0.1  # settings, cursor and first page, before the first claim
GROUP, POLLING_THREADS = 64, 8  # shards that one invocation polls, and how many at a time
WAKE_UPS_A_SECOND = 25  # simulated: passes that wake-ups begin, with the usual WakeUpConcurrency and cold starts
WAKE_UP_WAIT, WAKE_UP_WAIT_ON_THE_SECOND = 0.6, 0.1  # of an invocation, before its first task: SQS delays whole seconds
FIND_SECONDS = 0.03  # of one poll, and the start of that shard's pass

CONFIDENCE = 0.9
"""In this share of buckets, the placement of shards on index partitions is no worse than planned."""

HEADROOM = 0.04
"""The part of the time that a plan leaves, if it can."""

PREFERRED_THREADS = 64  # beyond which further workers come first

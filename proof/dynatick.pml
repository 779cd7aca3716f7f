/* The rules of docs/protocol.md in Promela, with its names. "3:" in a comment says that what follows keeps rule 3;
   -DRULE_OFF=3 takes that out, 103 and 203 other parts of it. proof/prove.py has the configurations, runs them through
   Spin, and prints what goes wrong without a rule as a story (make prove).

   Minutes are numbers, `now` is one, and the bucket of a minute has its number. The index shows a change at once, later,
   or now and then, until LAG minutes have passed. A process may be killed before each of its steps, and frozen there, but
   not beyond its hard end: time passes that only when the process has ended. */

#ifndef RULE_OFF
#define RULE_OFF 0
#endif
#define OFF(rule) (RULE_OFF == rule)

/* A line of the story. Who: one of these, the last two with the number of the invocation, which is its token, too. */
#define CLIENT 0
#define SCHEDULER 1
#define SCAN 2
#define STREAM 3
#define TICK 10
#define WAKE_UP 20
#define SAY(who, ...) printf("@%d [%d] ", now, who); printf(__VA_ARGS__)
#define NAME(task) (65 + task)

/* Status and outcome of a row in one: what is greater than RUNNING is an outcome. */
#define ABSENT 0
#define SCHEDULED 1
#define RUNNING 2
#define COMPLETED 3
#define CANCELLED 4
#define FAILED 5
#define OPEN(t) (status[t] == SCHEDULED || status[t] == RUNNING)
#define MAX(x, y) ((x) > (y) -> (x) : (y))

#ifndef END
#define END 4                      /* the last minute */
#endif
byte minute = 1;
#define now minute                 /* Spin's code has a `now` of its own */

#if defined(CONFIG_PACK)
#include "packs.pml"
#elif defined(CONFIG_KEYS)
#include "keys.pml"
#elif defined(CONFIG_RECOVERY)
#include "recovery.pml"
#elif defined(CONFIG_PLAN)
#include "plan.pml"
#else

/* -- Client, stream, scheduler, ticks and wake-ups of one shard: rules 1 to 9, 11 to 18 ------------------------------ */

#ifndef TASKS
#define TASKS 1                    /* or 2 */
#endif
#ifndef LAG
#define LAG 1                      /* L */
#endif
#ifndef SKEW
#define SKEW 0                     /* so far the clock of the second processor is ahead: the 4 s */
#endif
#ifndef BUCKETS
#define BUCKETS 2                  /* clients choose among these */
#endif
#ifndef INVOCATIONS
#define INVOCATIONS 3              /* of both processors together */
#endif
#ifndef EDITS
#define EDITS 0                    /* cancellations and reschedules, in all */
#endif
#ifndef LIFE
#define LIFE 1                     /* minutes from the one in which a process begins to that of its hard end */
#endif
#ifndef REPEATS
#define REPEATS 0                  /* writes whose answer is lost, so that the SDK sends them again */
#endif
#ifndef LATE
#define LATE 1                     /* minutes by which a tick may come late */
#endif
/* Further: WAKES, wake-ups; RETRIES, handlers that fail and records without an answer; STEAL, ticks that don't respect
   the shard lease (16); LOST, a stream that loses records (15); NEW_SHARD, one that has no
   cursor yet (14); AGAIN, a stream that repeats records. */
#ifdef STEAL
#define STOLEN true
#else
#define STOLEN false
#endif

/* rows, by task */
byte status[TASKS], bucket[TASKS], due[TASKS], token[TASKS], leaseUntil[TASKS];
/* the bucket that the index may still show instead, and when that changed */
byte before[TASKS], changedAt[TASKS];
/* the stream has a record for the scheduler, and the bucket in it; of several, the latest */
bit owed[TASKS];
byte image[TASKS];
/* the cursor: C is closedThrough, S is drainedThrough */
#ifdef NEW_SHARD
bit exists;
byte C, S, checkpoint, checkpointAt, lease, shardUntil;
#define MISSING !exists
#define CREATED exists = true
#else
byte C = 1, S, checkpoint = 1, checkpointAt = 1, lease, shardUntil;    /* a pass has closed 12:01 */
#define MISSING false
#define CREATED skip
#endif
byte invocations, edits, repeats, ended;
byte hardEnd[2];                   /* of both processors; 0: none */
/* For the proof alone: the invocation that executes a task, and whether its cancellation was answered. */
byte runner[TASKS];
bit answered[TASKS];

inline to_bucket(t, m)
{
	before[t] = bucket[t]; changedAt[t] = now; bucket[t] = m
}

inline to_stream(t)
{
	image[t] = bucket[t]; owed[t] = true;
#ifdef LOST
	if :: true :: owed[t] = false; SAY(STREAM, "loses the record of %c\n", NAME(t)) fi
#endif
}

/* 14: a missing cursor is created by the first process that needs it, with the last minute closed and drained. */
inline read_C()
{
#ifdef NEW_SHARD
	if
	:: MISSING && !OFF(14) ->
		exists = true; C = now - 1; S = C; checkpoint = C; checkpointAt = now;
		SAY(who, "creates the cursor, with 12:0%d closed and drained\n", C)
	:: else
	fi;
#endif
	c = C
}

/* 5: placement of task i. `b`: its bucket as it was read or, if it is not `fresh`, as the record shows it. */
inline place()
{
	do
	:: who > SCAN -> killed = true; break
	:: atomic {
		/* 5: C is read after the row */
		if :: OFF(5) && !fresh :: else -> read_C() fi;
		if :: b > c -> break :: else fi;
		nb = MAX(now, c) + 1;
		if :: OFF(5) :: else -> c = 0 fi };
	   atomic {
		if :: !OPEN(i) -> break :: else fi;
		if
		:: !fresh -> fresh = true; b = bucket[i]
		/* 5: on condition that nothing about its time has changed; 6: running tasks, too, and the task lease stays */
		:: fresh && (bucket[i] == b || OFF(105)) && (status[i] == SCHEDULED || !OFF(6)) ->
			SAY(who, "moves %c from 12:0%d to 12:0%d\n", NAME(i), bucket[i], nb);
			to_bucket(i, nb); b = nb;
			if :: status[i] == SCHEDULED -> to_stream(i) :: else fi;   /* 8 */
			if :: OFF(7) -> break :: else fi       /* 7: and reads C again */
		:: fresh && OFF(6) && bucket[i] == b && status[i] == RUNNING ->
			SAY(who, "leaves %c in 12:0%d, since it runs\n", NAME(i), b); break
		:: fresh && bucket[i] != b && !OFF(105) -> b = bucket[i]
		fi }
	od
}

/* A client with old settings or a skewed clock: it may choose any bucket, a closed one, too. */
proctype Client(byte t)
{
	byte n;
	atomic {
		select(n : 1 .. BUCKETS);
		status[t] = SCHEDULED; bucket[t] = n; due[t] = n; changedAt[t] = now;
		SAY(CLIENT, "inserts %c into 12:0%d\n", NAME(t), n);
		to_stream(t) };                               /* 8: every insert */
	do
	:: atomic { edits < EDITS && (status[t] == SCHEDULED || (OPEN(t) && OFF(13))) ->
		/* 13: cancel leaves only scheduled tasks */
		edits++; before[t] = bucket[t]; changedAt[t] = now; status[t] = CANCELLED; token[t] = 0; answered[t] = true;
		SAY(CLIENT, "cancels %c\n", NAME(t)) }
	:: atomic { edits < EDITS && (status[t] == SCHEDULED || (OPEN(t) && OFF(113))) ->
		/* 13: and so does reschedule */
		edits++; select(n : 1 .. BUCKETS);
		SAY(CLIENT, "reschedules %c from 12:0%d to 12:0%d\n", NAME(t), bucket[t], n);
		to_bucket(t, n); due[t] = n; status[t] = SCHEDULED; token[t] = 0;
		if :: OFF(8) :: else -> to_stream(t) fi }     /* 8: every change that leaves a row waiting */
	:: atomic { edits == EDITS || now == END -> ended++; break }
	od
}

/* Records come late, and again, also those of a scheduler that did not finish. */
proctype Scheduler()
{
	byte i, b, c, nb, who = SCHEDULER;
	bit fresh, killed;
	if :: OFF(5) -> c = C :: else fi;
	do
	:: atomic { OFF(5) && c != C -> c = C; SAY(who, "reads C, 12:0%d, for records to come\n", c) }
	:: atomic { owed[0] || owed[TASKS - 1] ->
		if :: owed[0] -> i = 0 :: owed[TASKS - 1] -> i = TASKS - 1 fi;
		owed[i] = false; b = image[i]; image[i] = 0; fresh = false;
		SAY(who, "gets the record of %c in 12:0%d\n", NAME(i), b) };
	   place();
	   atomic {
		if
		:: true
#ifdef AGAIN
		:: OPEN(i) && !owed[i] -> owed[i] = true; image[i] = b
#endif
		fi;
		i = 0; b = 0; nb = 0; fresh = false;
		if :: OFF(5) :: else -> c = 0 fi }
	:: atomic { ended >= TASKS + 2 && !owed[0] && !owed[TASKS - 1] -> break }
	od;
	ended++
}

#define MAY_DIE if :: true :: SAY(who, "is killed\n"); goto dead fi
#define CLOCK (now + me * SKEW)

/* Both processors have one invocation after the other: a pass or, with WAKES, a wake-up. */
proctype Processor(byte me)
{
	byte tick, tok, who, until, instant, known, closedAt, m, drained, point, pointAt, i, b, c, nb, outcome;
	bit fresh, killed, isPass, isFinal, held, clean, seen[TASKS];
begin:	do
	:: atomic { invocations < INVOCATIONS && (me == 0 || invocations || SKEW) ->
		invocations++; tok = invocations; until = now + LIFE; hardEnd[me] = until; isPass = true; who = TICK + tok;
		if :: tick = now :: now > LATE -> tick = now - LATE fi;    /* events come late, and twice */
		if :: OFF(4) -> closedAt = CLOCK :: else fi };
	   atomic { MAY_DIE;
		/* 1: a pass begins by closing, in the write that acquires the shard lease. C never goes back. */
		if :: MISSING -> C = tick - 1; S = C; checkpoint = C; checkpointAt = CLOCK; CREATED :: else fi;
		known = (OFF(101) -> tick : MAX(C, tick));
		if
		:: OFF(1) -> SAY(who, "begins, and does not close 12:0%d yet\n", known)
		:: else -> C = known; SAY(who, "closes through 12:0%d\n", C)
		fi;
		if
		:: lease && CLOCK <= shardUntil + SKEW && !STOLEN -> SAY(who, "leaves the shard to its holder\n"); goto dead
		:: else -> lease = tok; shardUntil = CLOCK + LIFE
		fi;
		drained = S; m = S + 1; point = checkpoint; pointAt = checkpointAt; clean = true; tick = 0;
		/* 4: checkpointAt is read after the closing write was answered (at once, at the earliest) */
		if :: OFF(4) :: else -> closedAt = CLOCK fi };
	   goto next_bucket
#ifdef WAKES
	/* Its order is written at any time, and carried out at any time after the instant, by the clock here (18). */
	:: atomic { invocations < INVOCATIONS && (OPEN(0) || OPEN(TASKS - 1)) ->
		if :: OPEN(0) -> i = 0 :: OPEN(TASKS - 1) -> i = TASKS - 1 fi;
		invocations++; tok = invocations; who = WAKE_UP + tok; m = bucket[i]; instant = due[i];
		SAY(who, "is ordered for %c in 12:0%d, due at 12:0%d\n", NAME(i), m, instant) };
	   if
	   :: atomic { CLOCK >= instant || OFF(118) -> until = now + LIFE; hardEnd[me] = until; seen[i] = true; goto next_task }
	   :: now == END && CLOCK < instant -> goto dead
	   fi
#endif
	:: atomic { invocations == INVOCATIONS -> ended++; goto stop }
	od;

next_bucket:
	if
	/* 2: every minute after S up to C, oldest first */
	:: m <= known
	:: else -> goto end_write
	fi;
	atomic { MAY_DIE;
		/* 3: a final poll begins L and the difference of two clocks after the bucket was closed */
		isFinal = m <= point && (OFF(3) || CLOCK >= pointAt + LAG + (OFF(203) -> 0 : SKEW));
		SAY(who, "polls 12:0%d\n", m);
		held = false; i = 0;
		do
		:: i < TASKS ->
			if
			:: OFF(2) && m % 2 == 0                    /* 2 off: not a minute of the grid of today */
			:: !(OFF(2) && m % 2 == 0) && bucket[i] == m && OPEN(i) -> seen[i] = true
			:: !(OFF(2) && m % 2 == 0) && (bucket[i] == m || before[i] == m) && now < changedAt[i] + LAG ->
				seen[i] = !(bucket[i] == m && OPEN(i))
			:: !(OFF(2) && m % 2 == 0) && (bucket[i] != m || !OPEN(i))
			fi;
			if :: seen[i] -> SAY(who, "sees %c there\n", NAME(i)) :: else fi;
			i++
		:: else -> break
		od };
	goto next_task;

claim:	atomic { MAY_DIE;
		seen[i] = false;
		if
		/* 9: conditional on the bucket that was polled, on the status, and on there being no outcome */
		:: (bucket[i] == m || OFF(9)) && (OPEN(i) || OFF(109)) &&
		   (status[i] != RUNNING || (isPass && CLOCK > leaseUntil[i] + SKEW)) &&
		   /* 18: outside a pass, on the instant that it was sent for */
		   (isPass || due[i] == instant || OFF(18)) ->
			status[i] = RUNNING; token[i] = tok;
			/* 11: the task lease lasts to the hard end */
			leaseUntil[i] = CLOCK + (OFF(11) -> 0 : until - now);
			SAY(who, "claims %c in 12:0%d\n", NAME(i), bucket[i])
		:: else ->
			if
			:: isPass && OPEN(i) && bucket[i] == m && isFinal && !OFF(103) ->
				/* 3: a row that can't be finished is deferred: to a tick after this process's end */
				nb = until + SKEW + 1; to_bucket(i, nb); b = nb;
				SAY(who, "defers %c, which another has, to 12:0%d\n", NAME(i), nb);
				goto check
			:: else ->
				/* 3: what this process has not seen recorded, moved or deleted holds the bucket back */
				held = held || (OPEN(i) && bucket[i] == m && !OFF(103));
				goto next_task
			fi
		fi };
	atomic { MAY_DIE;
		SAY(who, "begins %c\n", NAME(i));
		assert(!answered[i]);                                 /* a cancelled task does not begin, */
		assert(now >= due[i]);                                /* nor one before its time, */
		assert(!runner[i]);                                   /* nor one that runs */
		runner[i] = tok };
record:	atomic { MAY_DIE;
		runner[i] = (runner[i] == tok -> 0 : runner[i]);
		if
		:: outcome
		:: !outcome -> outcome = COMPLETED
#ifdef RETRIES
		:: !outcome -> outcome = SCHEDULED
		:: !outcome -> held = !OFF(103); SAY(who, "gets no answer to its record of %c\n", NAME(i)); goto next_task
#endif
		fi;
		if
		/* 12: conditional on the claim's own token */
		:: status[i] == RUNNING && (token[i] == tok || OFF(12)) ->
			assert(!runner[i]);                           /* nobody ends what another runs */
			if
			:: outcome == COMPLETED ->
				SAY(who, "records %c as completed\n", NAME(i));
				before[i] = bucket[i]; changedAt[i] = now; status[i] = COMPLETED; token[i] = 0
			:: else ->
				nb = now + 1; SAY(who, "puts %c back, into 12:0%d, to be tried again\n", NAME(i), nb);
				to_bucket(i, nb); status[i] = SCHEDULED; token[i] = 0; due[i] = nb; b = nb;
				to_stream(i)                          /* 8 */
			fi
		:: else -> held = held || (OPEN(i) && bucket[i] == m)    /* superseded, or it recognises itself */
		fi;
		if
		:: repeats < REPEATS ->
			repeats++; SAY(who, "gets no answer to that, and sends it again\n"); goto record
		:: true
		fi;
		if
		:: OFF(17) && !isPass -> S = MAX(S, m); SAY(who, "moves S to 12:0%d\n", S)
		:: else                                               /* 17: only the shard's holder moves C and S */
		fi;
		if :: outcome == COMPLETED -> goto next_task :: else fi };
check:	fresh = true;
	place();                                                      /* 7, 17: it checks what it has moved */
	if :: killed -> goto dead :: else fi;
next_task:
	atomic {
		i = 0; fresh = false; b = 0; c = 0; nb = 0; outcome = 0;
		if
		:: seen[0] -> goto claim
		:: !seen[0] && seen[TASKS - 1] -> i = TASKS - 1; goto claim
		:: else
		fi;
		if :: !isPass -> goto dead :: else fi;
		/* 3: S passes the bucket after a final poll that left nothing open */
		clean = clean && isFinal && !held;
		if :: clean -> drained = m :: else fi;
		m++ };
	goto next_bucket;

end_write:
	atomic { MAY_DIE;                                       /* 4 */
		if
		:: lease != tok && !OFF(16) -> SAY(who, "has lost the shard\n"); goto dead
		:: lease == tok && C > known && !OFF(16) ->
			known = C; closedAt = CLOCK; SAY(who, "finds that 12:0%d is closed\n", C); goto next_bucket
		:: else ->
			/* 16: C and S only grow */
			C = (OFF(16) -> known : MAX(C, known)); S = MAX(S, drained); lease = 0;
			if :: S >= point -> checkpoint = known; checkpointAt = closedAt :: else fi;
			SAY(who, "ends, with S at 12:0%d and the checkpoint at 12:0%d\n", S, checkpoint)
		fi };
dead:	atomic {
		i = 0;
		do
		:: i < TASKS -> if :: tok && runner[i] == tok -> runner[i] = 0 :: else fi; i++
		:: else -> break
		od;
		hardEnd[me] = 0;
		tick = 0; tok = 0; who = 0; until = 0; instant = 0; known = 0; closedAt = 0; m = 0; drained = 0; point = 0;
		pointAt = 0; i = 0; b = 0; c = 0; nb = 0; outcome = 0; fresh = false; killed = false; isPass = false; isFinal = false;
		held = false; clean = false; seen[0] = false; seen[TASKS - 1] = false };
	goto begin;
stop:	skip
}

proctype Clock()
{
	byte i;
	do
	:: atomic { now < END && (!hardEnd[0] || now < hardEnd[0]) && (!hardEnd[1] || now < hardEnd[1]) ->
		now++; i = 0;
		do                                                    /* the index has settled; forget what no longer matters */
		:: i < TASKS ->
			if :: now >= changedAt[i] + LAG -> changedAt[i] = 0; before[i] = 0; if :: status[i] > RUNNING -> bucket[i] = 0; due[i] = 0 :: else fi :: else fi;
			if :: now > leaseUntil[i] + SKEW -> leaseUntil[i] = 0 :: else fi;
#ifndef WAKES
			if :: now >= due[i] -> due[i] = 0 :: else fi;
#endif
			i++
		:: else -> break
		od;
		if :: now > shardUntil + SKEW -> shardUntil = 0 :: else fi;
		if :: now >= checkpointAt + LAG + SKEW -> checkpointAt = 0 :: else fi;
		i = 0 }
	:: ended == TASKS + 3 -> break
	od
}

init
{
	byte i, b, c, nb, who = SCAN;
	bit fresh, killed;
	atomic {
		do :: i < TASKS -> run Client(i); i++ :: else -> break od;
		i = 0;
		run Scheduler(); run Processor(0); run Processor(1); run Clock() };
	_nr_pr == 1;
	do
	:: i < TASKS ->
#ifdef LOST
		/* 15: the scan places every open row that no tick would poll */
		if :: OPEN(i) && bucket[i] <= S && !OFF(15) -> b = bucket[i]; fresh = true; place() :: else fi;
#endif
		/* No task is lost: what is open lies where ticks to come poll. */
		atomic {
			if
			:: OPEN(i) && bucket[i] <= S ->
				SAY(STREAM, "has no record left; %c is open in 12:0%d, which no tick polls any more\n", NAME(i), bucket[i])
			:: else
			fi;
			assert(!OPEN(i) || bucket[i] > S) };
		i++
	:: else -> break
	od
}
#endif

/* Three tasks of a limit key with one place, two processors, and a number of shards that changes from 1 to 2: then the
   key's shard is another. A part of dynatick.pml: rules 23 and 24. The limits lease lasts while its process does. */

#define TASKS 3
byte status[TASKS];                /* RUNNING also while it waits for a completion */
bit waits[TASKS];
byte shards = 1;                   /* the settings row */
bit changed;
byte holder[2], knows[2], held[2]; /* the limits record of each shard: lease, by which number of shards, kept place + 1 */
bit alive[9];
byte invocations;
byte inUse;                        /* for the proof alone: places of the key that are in use */

#define KILLED if :: true :: SAY(who, "is killed\n"); goto dead fi

proctype Processor()
{
	byte tok, who, n, k, i;
	bit runs;
	do
	:: atomic { invocations < 5 ->
		invocations++; tok = invocations; who = TICK + tok; alive[tok] = true;
		n = shards; k = n - 1; SAY(who, "knows %d shards\n", n) };
	   /* 24: it first writes its limits lease, */
	   atomic { KILLED;
		if
		:: OFF(124) && (n != shards || (changed && holder[1 - k] && alive[holder[1 - k]] && knows[1 - k] != n)) -> goto dead
		:: else
		fi };
	   atomic { KILLED;
		if
		/* 23: one process has it */
		:: holder[k] && alive[holder[k]] && !OFF(23) -> SAY(who, "finds that another has the limits lease\n"); goto dead
		:: else -> holder[k] = tok; knows[k] = n; SAY(who, "acquires the limits lease of shard %d\n", k)
		fi };
	   /* and then reads how many shards there are, and the leases of others */
	   atomic { KILLED;
		if
		:: OFF(124)
		:: !OFF(124) && n != shards -> SAY(who, "gives up, for there are %d shards\n", shards); goto release
		:: !OFF(124) && n == shards
		fi };
	   atomic { KILLED;
		if
		:: !OFF(24) && !OFF(124) && changed && holder[1 - k] && alive[holder[1 - k]] && knows[1 - k] != n ->
			SAY(who, "gives up, for a holder knows another number\n"); goto release
		:: else
		fi };
	   do
	   :: atomic {
		(status[0] == SCHEDULED || status[1] == SCHEDULED || status[2] == SCHEDULED) &&
		/* 23: a place that is kept counts until its task no longer waits */
		!(held[0] && status[held[0] - 1] == RUNNING) && !(held[1] && status[held[1] - 1] == RUNNING) ->
		KILLED;
		if :: status[0] == SCHEDULED -> i = 0 :: status[1] == SCHEDULED -> i = 1 :: status[2] == SCHEDULED -> i = 2 fi;
		status[i] = RUNNING; SAY(who, "begins %c\n", NAME(i));
		inUse++; runs = true;
		assert(inUse <= 1) };              /* never more than the limit of the key */
	      if
	      :: atomic { KILLED; status[i] = COMPLETED; inUse--; runs = false; SAY(who, "records %c as completed\n", NAME(i)) }
	      :: /* 23: the place is written before the task is handed over */
		 atomic { KILLED; if :: OFF(123) :: else -> held[k] = i + 1; SAY(who, "writes that %c keeps its place\n", NAME(i)) fi };
		 atomic { KILLED; waits[i] = true; runs = false; SAY(who, "hands %c over, to be completed later\n", NAME(i)) };
		 atomic { KILLED; held[k] = i + 1 }
	      fi
	   :: break
	   od;
	   atomic { KILLED };
release:   atomic { if :: holder[k] == tok -> holder[k] = 0 :: else fi };
dead:	   atomic {
		/* what it ran ends with it, and is reclaimed later, in its place (10) */
		if :: runs -> status[i] = SCHEDULED; inUse--; if :: held[k] == i + 1 -> held[k] = 0 :: else fi :: else fi;
		alive[tok] = false; if :: holder[0] == tok -> holder[0] = 0 :: else fi; if :: holder[1] == tok -> holder[1] = 0 :: else fi;
		tok = 0; who = 0; n = 0; k = 0; i = 0; runs = false }
	:: atomic { invocations == 5 -> break }
	od
}

proctype World()
{
	byte i;
	do
	:: atomic { shards == 1 -> shards = 2; changed = true; SAY(CLIENT, "deploys 2 shards\n") }
	:: atomic { waits[0] -> i = 0; goto complete }
	:: atomic { waits[1] -> i = 1; goto complete }
	:: atomic { waits[2] -> i = 2;
complete:	waits[i] = false; status[i] = COMPLETED; inUse--; SAY(CLIENT, "completes %c\n", NAME(i)); i = 0 }
	:: break
	od
}

init { status[0] = SCHEDULED; status[1] = SCHEDULED; status[2] = SCHEDULED; run Processor(); run Processor(); run World() }

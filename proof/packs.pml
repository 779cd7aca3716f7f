/* A pack of three members, two processors and a client. A part of dynatick.pml: rules 20 to 22. A lease lasts while its
   process does: who claims a pack or a row that runs finds its process killed (11). */

#define MEMBERS 3
#define ALL 7                      /* a bit for each member */
#define BIT(k) (1 << k)

byte pack = SCHEDULED, attempt, token, done, excluded;      /* the pack's row */
byte status[MEMBERS];                                       /* rows of members of their own */
bit alive[7];                                               /* invocations, by token */
byte invocations, changes, repeats;
/* for the proof alone */
byte runner[MEMBERS];
bit answered[MEMBERS], ok[MEMBERS], clientEnded;

/* an open row, which a tick claims; one that runs, once its lease is over (10) */
#define WAITS(k) (status[k] == SCHEDULED || (status[k] == RUNNING && !runner[k]))

#define KILLED if :: true :: SAY(who, "is killed\n"); goto dead fi

proctype Processor()
{
	byte tok, who, k, known, mine, was;
	bit expired;
	do
	:: atomic { invocations < 4 && (pack == SCHEDULED || (pack == RUNNING && !alive[token])) ->
		invocations++; tok = invocations; who = TICK + tok; alive[tok] = true;
		expired = pack == RUNNING; pack = RUNNING; token = tok; attempt++;
		SAY(who, "claims the pack\n"); known = done | excluded; mine = attempt; was = excluded };
	   if
	   :: OFF(21) && attempt > 2 -> atomic { pack = FAILED; SAY(who, "marks the pack as failed\n"); goto dead }
	   :: else
	   fi;
	   do
	   :: atomic { known != ALL ->
		KILLED;
		if :: !(known & 1) -> k = 0 :: !(known & 2) -> k = 1 :: !(known & 4) -> k = 2 fi };
	      if
	      /* 21: a pack whose lease expired is not run again, but each of its open members gets a row */
	      :: expired && !OFF(21)
	      :: else ->
		atomic { KILLED;
			SAY(who, "begins member %c\n", NAME(k));
			assert(!answered[k]);             /* a cancelled member does not begin, */
			assert(!runner[k]);               /* nor one that runs, */
			assert(status[k] == ABSENT);      /* nor one that has a row of its own */
			runner[k] = tok };
		atomic { KILLED;
			if
			/* 20: it still runs as its process ends, or could not be recorded: the others do not wait for its lease */
			:: true ->
				SAY(who, "ends while %c runs\n", NAME(k));
				if
				:: OFF(220)
				:: else ->
					assert(status[k] == ABSENT);
					status[k] = RUNNING; known = known | BIT(k); SAY(who, "gives %c a row that says so\n", NAME(k))
				fi;
				goto part
			:: runner[k] = 0; ok[k] = true; known = known | BIT(k); SAY(who, "has completed %c\n", NAME(k)); goto counted
			:: runner[k] = 0; SAY(who, "sees %c fail\n", NAME(k))
			fi }
	      fi;
	      /* 20 off: it is counted before it has its row */
	      if
	      :: OFF(20) -> atomic { KILLED; if :: token == tok -> done = done | BIT(k); SAY(who, "counts %c in the pack's row\n", NAME(k)) :: else -> goto dead fi }
	      :: else
	      fi;
extract:      atomic { KILLED;
		if
		/* 20: only if there is none */
		:: status[k] == ABSENT || OFF(120) ->
			assert(status[k] <= RUNNING);     /* no outcome is overwritten */
			status[k] = SCHEDULED; SAY(who, "gives %c a row of its own\n", NAME(k))
		:: else
		fi;
		if
		:: true
		:: repeats < 1 -> repeats++; SAY(who, "gets no answer to that, and sends it again\n"); goto extract
		fi;
		known = known | BIT(k) };
	      /* every few seconds, and when it is released, the row gets the bits, on condition of the token (12) */
counted:      if
	      :: true
	      :: atomic { KILLED; if :: token == tok -> done = known & ~excluded; SAY(who, "saves who has ended\n") :: else -> goto dead fi }
	      :: atomic { !expired && token == tok && pack == RUNNING -> KILLED; done = known & ~excluded; pack = SCHEDULED; attempt--;
			SAY(who, "releases the pack\n"); goto released }
	      fi
	   :: else -> break
	   od;
	   /* 20: only then the pack's row says that it has ended */
	   atomic { KILLED;
		if :: pack == RUNNING && token == tok -> pack = COMPLETED; done = known & ~excluded; SAY(who, "records the pack\n") :: else fi };
	   goto dead;
part:	   atomic { KILLED;
		if
		:: token == tok && pack == RUNNING -> done = known & ~excluded; pack = SCHEDULED; attempt--; SAY(who, "releases the pack\n")
		:: else -> goto dead
		fi };
released:  if
	   :: true
	   /* 22: conditional on the attempt, which a release takes back */
	   :: atomic { repeats < 1 && pack == SCHEDULED && token == tok && (attempt == mine || OFF(222)) ->
		repeats++; excluded = was; done = known & ~was; SAY(who, "gets no answer to its release, and sends it again\n") }
	   fi;
dead:	   atomic {
		if :: runner[0] == tok -> runner[0] = 0 :: else fi;
		if :: runner[1] == tok -> runner[1] = 0 :: else fi;
		if :: runner[2] == tok -> runner[2] = 0 :: else fi;
		alive[tok] = false; tok = 0; who = 0; k = 0; known = 0; mine = 0; was = 0; expired = false }
	/* an ordinary task from there on */
	:: atomic { WAITS(0) -> k = 0; goto row }
	:: atomic { WAITS(1) -> k = 1; goto row }
	:: atomic { WAITS(2) -> k = 2;
row:		assert(!answered[k]); assert(!runner[k]);
		SAY(TICK, "runs %c, which has a row of its own\n", NAME(k)); status[k] = COMPLETED; k = 0 }
	:: atomic { clientEnded && (pack > RUNNING || invocations == 4) && !WAITS(0) && !WAITS(1) && !WAITS(2) -> break }
	od
}

/* 22: clients change a member without a row only while its pack does not run */
proctype Client()
{
	byte k;
	do
	:: atomic { changes < 2 && (pack == SCHEDULED || (OFF(22) && pack == RUNNING)) ->
		select(k : 0 .. 2);
		if
		:: !((done | excluded) & BIT(k)) && status[k] == ABSENT ->
			changes++; excluded = excluded | BIT(k);
			if
			:: answered[k] = true; SAY(CLIENT, "cancels member %c\n", NAME(k))
			:: SAY(CLIENT, "reschedules member %c\n", NAME(k));
				/* 22: it gets its row in the same transaction */
				if :: OFF(122) -> goto second :: else -> status[k] = SCHEDULED fi
			fi
		:: else
		fi };
	   if
	   :: false ->
second:		atomic {
			if
			:: status[k] = SCHEDULED; SAY(CLIENT, "gives %c a row\n", NAME(k))
			:: SAY(CLIENT, "is interrupted before %c has a row\n", NAME(k))
			fi }
	   :: else
	   fi
	:: break
	od;
	clientEnded = true
}

init
{
	byte k;
	atomic { run Processor(); run Processor(); run Client() };
	_nr_pr == 1;
	do
	:: k < MEMBERS ->
		/* No member is lost: it has completed, was cancelled, or has a row. (A pack that is open is claimed later.) */
		atomic {
			if
			:: pack > RUNNING && !ok[k] && !answered[k] && status[k] == ABSENT ->
				SAY(STREAM, "has nothing to show of member %c, which is lost\n", NAME(k))
			:: else
			fi;
			assert(pack <= RUNNING || ok[k] || answered[k] || status[k] != ABSENT) };
		k++
	:: else -> break
	od
}

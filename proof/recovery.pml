/* Two tasks, of which A kills the process that executes it, and two attempts for each. A part of dynatick.pml: rule 10.
   All leases that matter have expired: what a process had when it was killed is free. */

#define ATTEMPTS 2

byte status[2], attempt[2], executed[2];
bit free[2] = true;
byte invocations;

/* One invocation after the other; the first claims both as a pass does, and those after it are recoveries. */
proctype Processor()
{
	byte i, who;
	bit claimed[2];
	do
	:: atomic { OPEN(0) || OPEN(1) ->
		who = TICK + 1;
		do
		/* 10: an expired task is reclaimed with others only while it has attempts left */
		:: OPEN(0) && free[0] && (!claimed[1] || OFF(10) || (attempt[0] + 1 < ATTEMPTS && attempt[1] < ATTEMPTS)) ->
			i = 0; break
		:: OPEN(1) && free[1] && (!claimed[0] || OFF(10) || (attempt[1] + 1 < ATTEMPTS && attempt[0] < ATTEMPTS)) ->
			i = 1; break
		:: claimed[0] || claimed[1] -> i = 2; break
		:: !(claimed[0] || claimed[1]) && !(OPEN(0) && free[0]) && !(OPEN(1) && free[1]) -> i = 3; break
		od;
		if
		:: i < 2 && attempt[i] == ATTEMPTS ->
			/* 10: at the maximum it fails without being executed */
			status[i] = FAILED; SAY(who, "marks %c as failed: it has no attempt left\n", NAME(i));
			assert(i == 0)                        /* B kills nothing, so it does not fail */
		:: i < 2 && attempt[i] < ATTEMPTS ->
			status[i] = RUNNING; free[i] = false; claimed[i] = true;
			/* 10: the claim counts the attempt */
			if :: OFF(110) :: else -> attempt[i]++ fi;
			SAY(who, "claims %c, attempt %d\n", NAME(i), attempt[i])
		:: i == 3 -> i = 0
		:: i == 2 ->
			if :: claimed[0] -> i = 0 :: claimed[1] -> i = 1 fi;
			SAY(who, "executes %c\n", NAME(i)); executed[i]++;
			assert(executed[i] <= ATTEMPTS);      /* no task is executed more often */
			if
			:: i == 0 ->
				SAY(who, "is killed by A\n");
				claimed[0] = false; claimed[1] = false; free[0] = true; free[1] = true
			:: else ->
				status[1] = COMPLETED; claimed[1] = false; SAY(who, "records B as completed\n")
			fi
		fi }
	:: atomic { !OPEN(0) && !OPEN(1) -> break }
	od
}

init { status[0] = SCHEDULED; status[1] = SCHEDULED; run Processor() }

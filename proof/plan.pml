/* Passes that plan wake-ups, and whose closing write may get no answer. A part of dynatick.pml: rule 19. */

byte C = 1, plannedThrough = 1, writtenBy, invocations, killed, repeats;
byte planned[9];

proctype Processor()
{
	byte tick, tok, who, from, through;
	do
	:: atomic { invocations < 4 ->
		invocations++; tok = invocations; who = TICK + tok;
		if :: tick = now :: now > 1 -> tick = now - 1 fi };
	   /* 19: plannedThrough rises in the closing write, and only the pass that raised it plans */
closing:   atomic {
		if
		:: true
		:: killed++; SAY(who, "is killed\n"); goto dead
		fi;
		if
		:: writtenBy == tok -> SAY(who, "sees that it has closed already\n")
		:: else ->
			from = plannedThrough + 1; through = tick + 1;
			if :: OFF(19) -> from = tick + 1 :: else fi;
			C = MAX(C, tick); plannedThrough = MAX(plannedThrough, through); writtenBy = tok;
			SAY(who, "closes through 12:0%d, and plans through 12:0%d\n", C, plannedThrough)
		fi;
		if
		:: true
		:: repeats < 2 -> repeats++; killed++; SAY(who, "gets no answer, and sends it again\n"); goto closing
		fi };
	   atomic {
		if
		:: true
		:: killed++; SAY(who, "is killed\n"); goto dead
		fi;
		do
		:: from <= through ->
			planned[from]++; SAY(who, "sends the wake-ups of 12:0%d\n", from);
			assert(planned[from] <= 1);              /* never twice */
			from++
		:: else -> break
		od };
dead:	   atomic { tick = 0; tok = 0; who = 0; from = 0; through = 0 }
	:: atomic { invocations == 4 -> break }
	od
}

init
{
	byte m = 2;
	atomic { run Processor(); run Processor() };
	do :: now < END -> now++ :: _nr_pr == 1 -> break od;
	/* And once, unless a process was killed, or never knew what it had written: then the tick runs those tasks. */
	do
	:: m <= plannedThrough -> assert(planned[m] == 1 || killed); m++
	:: else -> break
	od
}

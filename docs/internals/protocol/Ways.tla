------------------------------- MODULE Ways -------------------------------
(***************************************************************************)
(* The same steps, with what a search through the graph of all states must *)
(* know of each: from every state that has begun a settled one is reached  *)
(* by quiet steps alone, and from every state with room an effect is       *)
(* reached without a fault.  "There is a way" is no formula of TLA, so the *)
(* graph that TLC writes is searched by tests/model/tla.py.                *)
(***************************************************************************)
EXTENDS Effects

VARIABLE flags

Frozen == ledger.epoch < known  \* nothing may ever come of a copy from before an admission
Flags ==
    (IF Is({"succeeded", "rejected", "expired", "revoked", "not_executed", "written_off"}) THEN {"settled"} ELSE {})
    \cup (IF ~Is({"nothing", "proposed", "available"}) /\ ~Frozen THEN {"begun"} ELSE {})
    \cup (IF receiver.effects > 0 THEN {"done"} ELSE {})
    \cup (IF /\ Len(members) < Members /\ ~Is({"written_off"}) /\ ~Frozen
             /\ receiver.mark <= HighestMark(members) /\ HighestMark(members) < Generations THEN {"room"} ELSE {})

Show == flags' = Flags'
QuietStep == Quiet /\ Show
WorkStep == Work /\ Show
FarStep == FarSide /\ Show
FaultStep == Fault /\ Show

WaysInit == Init /\ flags = Flags
WaysNext == QuietStep \/ WorkStep \/ FarStep \/ FaultStep
WaysSpec == WaysInit /\ [][WaysNext]_<<vars, flags>>
=============================================================================

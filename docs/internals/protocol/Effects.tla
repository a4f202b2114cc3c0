------------------------------ MODULE Effects ------------------------------
(***************************************************************************)
(* One key of the effect ledger: its members, its workers, its receiver,   *)
(* its witness and a copy of its database that may come back.              *)
(*                                                                         *)
(* Everything is one step that any of them can take next.  A worker that   *)
(* dies takes none any more; what was sent arrives at any later time, or   *)
(* never.  The page tla.md beside this folder says how to run it.          *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Class,        \* the receiver: "N", "V", "I", "Ip", "F_minus" or "F"
    Witness,      \* TRUE: asked before a permit leaves; FALSE: there is none
    Restores,     \* how often an older copy may come back
    Generations,  \* the highest generation that a claim may take
    Members,      \* how many members a successor may make of the key
    Silences,     \* whether the witness may fall silent
    Ends,         \* which of "reject", "revoke", "expire" may happen
    Observer,     \* whether anybody can look at the target
    Broken        \* rules that a twin breaks; {} is the protocol

VARIABLES
    ledger,       \* where the database stands: state, epoch, lost, opening
    members,      \* the rows of the key, the newest last
    cosigned,     \* the witness has seen the last leaf
    behind,       \* the witness has seen more than this database has
    known,        \* the highest epoch that the witness knows
    copy,         \* {} or {a snapshot of the database}
    restores,     \* how often a copy came back
    receiver,     \* what the far side knows, and how many effects there were
    receiverCopy, \* {} or {a snapshot of the receiver}, in one twin only
    permits,      \* what left the ledger and has not arrived
    handed,       \* the highest pair of epoch and generation handed out
    signed        \* the epoch in which people approved, in one twin only

vars == <<ledger, members, cosigned, behind, known, copy, restores, receiver, receiverCopy, permits, handed, signed>>

Breaks(rule) == rule \in Broken
None == -1
Max(a, b) == IF a > b THEN a ELSE b
MaxOf(S) == CHOOSE x \in S : \A y \in S : y <= x
Above(p, q) == p[1] > q[1] \/ (p[1] = q[1] /\ p[2] > q[2])

Fences == Class \in {"F_minus", "F"}
ChecksExpiry == Class \in {"V", "I"}
Timed == ChecksExpiry \/ Breaks("timer")
OneEffectPerPermit == Class \in {"I", "Ip", "F_minus", "F"}

-----------------------------------------------------------------------------
(* Rows.  `exp` is the permit's end and `doubt` when the doubt was recorded, as far as a timer cares. *)

NoWorker == <<None, None>>
NoLook == [found |-> "none", epoch |-> None, after |-> None]
Blank == [st |-> "proposed", epoch |-> 0, floor |-> 0, gen |-> None, approved |-> None, revoked |-> FALSE,
          worker |-> NoWorker, leaf |-> FALSE, opening |-> None, exp |-> "none", handed |-> FALSE, doubt |-> "none",
          drain |-> None, look |-> NoLook, fenced |-> 0]

Mark(r) == Max(IF r.gen = None THEN r.floor ELSE r.gen, r.fenced)
HighestMark(m) == IF m = <<>> THEN 0 ELSE MaxOf({Mark(m[i]) : i \in 1..Len(m)})
State(m) == IF m = <<>> THEN "nothing" ELSE m[Len(m)].st
Newest == members[Len(members)]

Closed == {"succeeded", "superseded", "rejected", "expired", "revoked", "not_executed", "written_off"}
MayBeFollowed == {"not_executed", "expired", "rejected", "revoked"}
                     \cup (IF Breaks("successor") THEN {"unresolved"} ELSE {})

Plain(r) ==  \* without what no rule asks for: states that differ only in that are one
    IF r.st \in {"superseded", "succeeded"} THEN [Blank EXCEPT !.st = r.st, !.gen = r.gen, !.floor = Mark(r)]
    ELSE IF r.doubt # "none" /\ r.exp # "none" THEN [r EXCEPT !.doubt = "old"]
    ELSE r

Aged(m) == [i \in 1..Len(m) |->
    [m[i] EXCEPT !.exp = IF @ = "none" THEN @ ELSE "over", !.doubt = IF @ = "none" THEN @ ELSE "old"]]
AgedPermits == {[p EXCEPT !.over = ChecksExpiry] : p \in permits}
AgedCopy == {[c EXCEPT !.members = Aged(@)] : c \in copy}

With(r) == [members EXCEPT ![Len(members)] = Plain(r)]

-----------------------------------------------------------------------------
(* What a step leaves alone. *)

Outside == <<receiver, receiverCopy, permits, handed, signed>>
Memory == <<behind, known, copy, restores>>

Write(m) ==  \* one transaction: rows and a leaf that the witness has not seen
    /\ members' = m
    /\ cosigned' = (cosigned /\ m = members)
    /\ UNCHANGED <<ledger, Memory>>

In(states) == ledger.state \in states
Is(states) == State(members) \in states

-----------------------------------------------------------------------------
(* People: propose, approve, end, follow. *)

Propose ==  \* after an admission that lost leaves nobody knows whether an unknown key is new
    /\ In({"open", "held"})
    /\ members = <<>>
    /\ LET unknown == ledger.lost /\ ~Fences /\ ~Breaks("lost_key")
           row == [Blank EXCEPT !.epoch = ledger.epoch]
       IN Write(<<IF unknown THEN [row EXCEPT !.st = "unresolved", !.doubt = "new"] ELSE row>>)
    /\ UNCHANGED Outside

Approve ==
    /\ In({"open", "held"})
    /\ Is({"proposed"})
    /\ LET epoch == IF Breaks("approve_once") /\ signed # None THEN signed ELSE ledger.epoch
       IN /\ Breaks("epoch") \/ (epoch = ledger.epoch /\ epoch = Newest.epoch)
          /\ Write(With([Newest EXCEPT !.st = "available", !.approved = epoch]))
          /\ signed' = IF Breaks("approve_once") THEN epoch ELSE signed
    /\ UNCHANGED <<receiver, receiverCopy, permits, handed>>

Reject == /\ "reject" \in Ends
          /\ In({"open", "held"})
          /\ Is({"proposed"})
          /\ Write(With([Newest EXCEPT !.st = "rejected"]))
          /\ UNCHANGED Outside

Expire == /\ "expire" \in Ends
          /\ In({"open", "held"})
          /\ Is({"proposed", "available"})
          /\ Write(With([Newest EXCEPT !.st = "expired"]))
          /\ UNCHANGED Outside

Revoke ==  \* after the claim it is a flag: it cancels nothing that was sent, and blocks what was not
    /\ "revoke" \in Ends
    /\ In({"open", "held"})
    /\ Is({"proposed", "available", "claimed", "prepared", "unresolved"})
    /\ ~Newest.revoked
    /\ Write(With([Newest EXCEPT !.revoked = TRUE, !.st = IF @ \in {"proposed", "available"} THEN "revoked" ELSE @]))
    /\ UNCHANGED Outside

Successor ==
    /\ In({"open", "held"})
    /\ Len(members) < Members
    /\ Is(MayBeFollowed)
    /\ ~Witness \/ cosigned \/ Newest.st # "not_executed"
    /\ Write(Append(With([Newest EXCEPT !.st = "superseded"]),
                    [Blank EXCEPT !.epoch = ledger.epoch, !.floor = HighestMark(members)]))
    /\ UNCHANGED Outside

-----------------------------------------------------------------------------
(* Workers: claim, prepare, hand out. *)

Claim ==  \* the generation is above every mark of the key; a claim's name is what it was made from
    /\ In({"open", "held"})
    /\ Is({"available"})
    /\ HighestMark(members) < Generations
    /\ Newest.epoch = ledger.epoch
    /\ Newest.approved = ledger.epoch \/ Breaks("epoch")
    /\ ~Newest.revoked
    /\ LET gen == HighestMark(members) + 1
       IN Write(With([Newest EXCEPT !.st = "claimed", !.gen = gen, !.worker = <<ledger.epoch, gen>>]))
    /\ UNCHANGED Outside

Prepare ==
    /\ In({"open"})
    /\ Is({"claimed"})
    /\ Newest.epoch = ledger.epoch
    /\ ~Newest.revoked
    /\ Write(With([Newest EXCEPT !.st = "prepared", !.leaf = TRUE, !.opening = ledger.opening, !.exp = "live"]))
    /\ UNCHANGED Outside

HandOut(again) ==  \* again: by a process that was started after the end of the one that prepared it
    LET row == Newest
        pair == <<ledger.epoch, row.gen>>
        permit == [ep |-> ledger.epoch, gen |-> row.gen, over |-> FALSE, worker |-> row.worker, again |-> again,
                   sent |-> FALSE]
    IN /\ In({"open"})
       /\ Is({"prepared"})
       /\ Breaks("again") \/ (~again /\ row.opening = ledger.opening)
       /\ row.epoch = ledger.epoch
       /\ ~row.revoked
       /\ row.exp = "live"
       /\ row.drain = None
       /\ ~Witness \/ cosigned \/ Breaks("late_witness")
       /\ ~row.handed \/ OneEffectPerPermit \/ Breaks("again")
       /\ Write(With([row EXCEPT !.handed = TRUE]))
       /\ permits' = permits \cup {permit}
       /\ handed' = IF row.handed THEN handed
                    ELSE [top |-> IF Above(pair, handed.top) THEN pair ELSE handed.top,
                          fell |-> handed.fell \/ (Witness /\ ~Above(pair, handed.top))]
       /\ UNCHANGED <<receiver, receiverCopy, signed>>

HandOutOnce == HandOut(FALSE)
HandOutAgain == HandOut(TRUE)

-----------------------------------------------------------------------------
(* Doubt and evidence. *)

Doubt ==
    /\ In({"open", "held"})
    /\ Is({"claimed", "prepared"})
    /\ Write(With(IF Breaks("back")
                  THEN [Newest EXCEPT !.st = "available", !.floor = Mark(Newest), !.gen = None, !.worker = NoWorker,
                                      !.leaf = FALSE, !.handed = FALSE]
                  ELSE [Newest EXCEPT !.st = "unresolved", !.doubt = "new"]))
    /\ UNCHANGED Outside

MayDrain == /\ In({"open", "held", "recovery"})
            /\ Is({"prepared", "unresolved"})
            /\ Class # "F"
            /\ Newest.drain # ledger.epoch
Drained == Write(With([Newest EXCEPT !.drain = ledger.epoch]))

DrainByTime ==  \* the receiver refuses every permit that there can be
    /\ MayDrain
    /\ ChecksExpiry \/ (Breaks("timer") /\ ~Fences)
    /\ IF Newest.exp # "none" THEN Newest.exp = "over" ELSE Newest.doubt = "old"
    /\ Drained
    /\ UNCHANGED Outside

DrainByDeadPaths ==  \* after an admission the lost history may have had other workers than the row names
    /\ MayDrain
    /\ LET one == Breaks("covers") \/ (Newest.worker # NoWorker /\ ledger.epoch = 0)
           left == {p \in permits : one /\ p.worker # Newest.worker}
           stopped == {<<a[1], a[2], TRUE>> : a \in receiver.pending}
       IN IF Breaks("untrue_drain") THEN UNCHANGED <<permits, receiver>>
          ELSE permits' = left /\ receiver' = [receiver EXCEPT !.pending = stopped]
    /\ Drained
    /\ UNCHANGED <<receiverCopy, handed, signed>>

Look ==  \* what is seen names the drain that it followed
    /\ Observer
    /\ In({"open", "held", "recovery"})
    /\ Is({"claimed", "prepared", "unresolved"})
    /\ LET found == IF receiver.effects > 0 THEN "executed" ELSE "nothing"
       IN /\ found = "executed" \/ Newest.look.found # "executed"
          /\ Write(With([Newest EXCEPT !.look = [found |-> found, epoch |-> ledger.epoch, after |-> Newest.drain]]))
    /\ UNCHANGED Outside

LookIsSuccess == /\ Observer
                 /\ receiver.effects > 0
                 /\ In({"open", "held"})
                 /\ Is({"prepared", "unresolved"})
                 /\ Write(With([Newest EXCEPT !.st = "succeeded"]))
                 /\ UNCHANGED Outside

Names(gen) ==  \* evidence of a generation that no member has rebuilds the member that a lost history had
    /\ In({"open", "held"})
    /\ Is({"prepared", "unresolved"})
    /\ LET taken == \E i \in 1..Len(members) : members[i].gen = gen
       IN Write(IF taken THEN With([Newest EXCEPT !.st = "succeeded"])
                ELSE Append(With([Newest EXCEPT !.st = "superseded"]),
                            Plain([Blank EXCEPT !.st = "succeeded", !.gen = gen, !.floor = gen - 1])))

Receipt == /\ Fences
           /\ \E gen \in receiver.executed : Names(gen)
           /\ UNCHANGED Outside

(* The receiver's answer for the whole key, which raises its mark where it says that nothing was executed. *)
Asked == IF Breaks("per_generation") THEN receiver.executed \cap {HighestMark(members)} ELSE receiver.executed
Answer == IF Asked # {} THEN "executed"
          ELSE IF receiver.pending # {} /\ ~Breaks("accepted_fenced") THEN "unknown" ELSE "nothing"
Fenced == [receiver EXCEPT !.mark = Max(@, HighestMark(members))]
Told == IF Answer = "nothing" THEN Fenced
        ELSE [Fenced EXCEPT !.pending = {}, !.executed = @ \cup {a[1] : a \in {b \in receiver.pending : b[2]}}]

FenceSaysExecuted == /\ Fences
                     /\ Answer = "executed"
                     /\ Names(MaxOf(Asked))
                     /\ UNCHANGED Outside

NotExecuted(found) ==  \* found: the receiver's answer, or "none" where it was not asked
    LET settled == found = "nothing"
        after == Newest.look.after = Newest.drain /\ Newest.drain # None
    IN /\ In({"open"})
       /\ Is({"prepared", "unresolved"})
       /\ \/ Breaks("word")
          \/ settled
          \/ /\ found # "none" \/ ~Fences \/ Breaks("not_asked")
             /\ found = "unknown" => Class = "F_minus"
             /\ Newest.drain = ledger.epoch \/ Breaks("no_drain")
             /\ Newest.look.found = "nothing" /\ Newest.look.epoch = ledger.epoch
             /\ after \/ Breaks("no_drain") \/ Breaks("early_look")

CloseUnprepared == /\ In({"open"})
                   /\ Is({"claimed", "unresolved"})
                   /\ ~Newest.leaf

Unexecuted(mark) == Write(With([Newest EXCEPT !.st = "not_executed", !.fenced = Max(@, mark)]))

NotExecutedByDrain == /\ NotExecuted("none")
                      /\ Unexecuted(0)
                      /\ UNCHANGED Outside

NotExecutedByFence == /\ Fences
                      /\ Answer # "executed"
                      /\ NotExecuted(Answer)
                      /\ Unexecuted(Fenced.mark)
                      /\ receiver' = Told
                      /\ UNCHANGED <<receiverCopy, permits, handed, signed>>

CloseByWitness ==  \* something outside of the database says that this history is the only one
    /\ CloseUnprepared
    /\ (Witness /\ ~ledger.lost) \/ Breaks("unconfirmed_close")
    /\ Unexecuted(0)
    /\ UNCHANGED Outside

CloseByFence == /\ CloseUnprepared
                /\ Fences
                /\ Answer = "nothing"
                /\ Unexecuted(Fenced.mark)
                /\ receiver' = Told
                /\ UNCHANGED <<receiverCopy, permits, handed, signed>>

WriteOff == /\ ~Observer /\ ~Breaks("no_write_off")
            /\ In({"open"})
            /\ Is({"unresolved"})
            /\ Write(With([Newest EXCEPT !.st = "written_off"]))
            /\ UNCHANGED Outside

-----------------------------------------------------------------------------
(* The far side. *)

Received(p) ==
    LET late == ChecksExpiry /\ p.over
        effect == [receiver EXCEPT !.effects = @ + 1]
    IN CASE Class = "N" -> effect
         [] Class = "V" -> IF late \/ p.ep < receiver.epoch THEN receiver ELSE [effect EXCEPT !.epoch = p.ep]
         [] Class \in {"I", "Ip"} -> IF late \/ p.gen \in receiver.executed THEN receiver
                                     ELSE [effect EXCEPT !.executed = @ \cup {p.gen}]
         [] p.ep < receiver.epoch \/ p.gen <= receiver.mark -> receiver
         [] OTHER -> IF Class = "F"
                     THEN [effect EXCEPT !.epoch = p.ep, !.mark = p.gen, !.executed = @ \cup {p.gen}]
                     ELSE IF receiver.pending # {} /\ ~Breaks("accepts_over") THEN receiver
                     ELSE [receiver EXCEPT !.epoch = p.ep, !.mark = p.gen, !.pending = @ \cup {<<p.gen, FALSE, FALSE>>}]

NothingWritten == UNCHANGED <<ledger, members, cosigned, Memory, receiverCopy, handed, signed>>

Deliver == /\ \E p \in permits :
                /\ receiver' = Received(p)
                /\ permits' = (permits \ {p})
                              \cup (IF Breaks("twice") /\ ~p.sent THEN {[p EXCEPT !.sent = TRUE]} ELSE {})
           /\ NothingWritten

RunAccepted ==  \* F_minus: the effect of what it accepted runs, and then its outcome is stored; or never
    /\ \E a \in receiver.pending :
         /\ ~a[3]
         /\ receiver' = IF a[2] THEN [receiver EXCEPT !.pending = @ \ {a}, !.executed = @ \cup {a[1]}]
                        ELSE [receiver EXCEPT !.pending = (@ \ {a}) \cup {<<a[1], TRUE, FALSE>>}, !.effects = @ + 1]
    /\ UNCHANGED permits
    /\ NothingWritten

-----------------------------------------------------------------------------
(* The witness, copies, admission, time. *)

Cosign == /\ Witness
          /\ In({"open"})
          /\ Is({"prepared", "not_executed"})
          /\ ~cosigned
          /\ cosigned' = TRUE
          /\ copy' = {[c EXCEPT !.behind = @ \/ c.ledger # ledger \/ c.members # members] : c \in copy}
          /\ UNCHANGED <<ledger, members, behind, known, restores, Outside>>

Says(stands, late) == IF stands.epoch < known THEN "frozen" ELSE IF late THEN "recovery" ELSE "open"

FallSilent == /\ Witness /\ Silences /\ In({"open"})
              /\ ledger' = [ledger EXCEPT !.state = "held"]
              /\ UNCHANGED <<members, cosigned, Memory, Outside>>

Speak == /\ Witness /\ In({"held"})
         /\ ledger' = [ledger EXCEPT !.state = Says(ledger, behind)]
         /\ UNCHANGED <<members, cosigned, Memory, Outside>>

Backup == /\ restores < Restores
          /\ copy = {}
          /\ copy' = {[ledger |-> ledger, members |-> members, cosigned |-> cosigned, behind |-> behind]}
          /\ receiverCopy' = IF Breaks("receiver_restored") THEN {receiver} ELSE {}
          /\ UNCHANGED <<ledger, members, cosigned, behind, known, restores, receiver, permits, handed, signed>>

Restore ==  \* the copy comes back and is opened, through another opening; it asks the witness where it stands
    /\ restores < Restores
    /\ \E c \in copy :
         /\ ledger' = [c.ledger EXCEPT !.opening = restores + 1,
                       !.state = IF ~Witness THEN @ ELSE IF Silences THEN "held" ELSE Says(c.ledger, c.behind)]
         /\ members' = c.members
         /\ cosigned' = c.cosigned
         /\ behind' = c.behind
    /\ copy' = {}
    /\ restores' = restores + 1
    /\ UNCHANGED <<known, Outside>>

RestoreReceiver ==
    /\ restores < Restores
    /\ copy # {}
    /\ \E r \in receiverCopy : receiver' = [r EXCEPT !.effects = receiver.effects]
    /\ receiverCopy' = {}
    /\ copy' = {}
    /\ restores' = restores + 1
    /\ UNCHANGED <<ledger, members, cosigned, behind, known, permits, handed, signed>>

Demoted == {"proposed", "available", "claimed", "prepared", "unresolved", "rejected", "expired", "revoked", "not_executed"}
               \ (IF Breaks("demote_few") THEN {"proposed", "rejected", "expired", "revoked", "not_executed"}
                  ELSE IF Breaks("demote_open") THEN {"rejected", "expired", "revoked", "not_executed"} ELSE {})

Admit ==  \* officers wait for the longest permit, raise the epoch at the receiver and demote the newest member
    LET waited == IF Breaks("no_wait") THEN members ELSE Aged(members)
        n == Len(waited)
        epoch == ledger.epoch + 1
    IN /\ In({"recovery"})
       /\ ledger' = [ledger EXCEPT !.state = "open", !.epoch = epoch, !.lost = TRUE]
       /\ members' = IF State(waited) \in Demoted
                     THEN [waited EXCEPT ![n] = Plain([waited[n] EXCEPT !.st = "unresolved", !.doubt = "new"])]
                     ELSE waited
       /\ cosigned' = TRUE
       /\ behind' = FALSE
       /\ known' = epoch
       /\ copy' = IF Breaks("no_wait") THEN copy ELSE AgedCopy
       /\ permits' = IF Breaks("no_wait") THEN permits ELSE AgedPermits
       /\ receiver' = IF Class \in {"V", "F_minus", "F"} /\ ~Breaks("no_raise")
                      THEN [receiver EXCEPT !.epoch = Max(@, epoch)] ELSE receiver
       /\ UNCHANGED <<restores, receiverCopy, handed, signed>>

TimePasses == /\ Timed
              /\ members' = Aged(members)
              /\ permits' = AgedPermits
              /\ copy' = AgedCopy
              /\ UNCHANGED <<ledger, cosigned, behind, known, restores, receiver, receiverCopy, handed, signed>>

-----------------------------------------------------------------------------
Quiet == \/ Propose \/ Approve \/ Reject \/ Expire \/ Revoke \/ Successor
         \/ Doubt \/ DrainByTime \/ DrainByDeadPaths \/ Look \/ LookIsSuccess \/ Receipt \/ FenceSaysExecuted
         \/ NotExecutedByDrain \/ NotExecutedByFence \/ CloseByWitness \/ CloseByFence \/ WriteOff
         \/ Cosign \/ Speak \/ Admit \/ TimePasses
Work == Claim \/ Prepare \/ HandOutOnce \/ HandOutAgain
FarSide == Deliver \/ RunAccepted
Fault == FallSilent \/ Backup \/ Restore \/ RestoreReceiver

Init == /\ ledger = [state |-> "open", epoch |-> 0, lost |-> FALSE, opening |-> 0]
        /\ members = <<>>
        /\ cosigned = FALSE /\ behind = FALSE /\ known = 0
        /\ copy = {} /\ restores = 0
        /\ receiver = [effects |-> 0, epoch |-> 0, mark |-> 0, executed |-> {}, pending |-> {}]
        /\ receiverCopy = {} /\ permits = {}
        /\ handed = [top |-> <<None, None>>, fell |-> FALSE] /\ signed = None
Next == Quiet \/ Work \/ FarSide \/ Fault
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold.  The numbers are those of the invariants in protocol.md. *)

Once == receiver.effects <= 1

HandedOutOnlyGrows == ~handed.fell  \* 1, across restores

Truthful == ~(Witness /\ In({"open"}) /\ Is({"not_executed"}) /\ receiver.effects > 0)

OneOpenMember ==
    /\ Cardinality({i \in 1..Len(members) : members[i].st \notin Closed}) <= 1
    /\ ~Is({"superseded"})
    /\ \A i, j \in 1..Len(members) : members[i].gen = members[j].gen /\ members[i].gen # None => i = j  \* 1

Within == restores' = restores  \* one history
MarksOnlyGrow == [][Within => HighestMark(members') >= HighestMark(members)]_vars  \* 6
NoWayBack == [][Within /\ State(members') = "available" => State(members) \in {"available", "proposed"}]_vars
ClosedStays ==
    [][Within /\ ledger'.epoch = ledger.epoch =>
         \A i \in 1..Len(members) : members[i].st \in Closed => members'[i].st \in {members[i].st, "superseded"}]_vars
=============================================================================

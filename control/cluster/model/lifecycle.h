/* What is next of an allocation, of what is seen of it: however that came to be known. Pure functions; any thread. */
#ifndef FLYT_CLUSTER_MODEL_LIFECYCLE_H
#define FLYT_CLUSTER_MODEL_LIFECYCLE_H

/* What is seen of an allocation: desired (its VM's document), written (the store) and observed (its node's word). */
enum flyt_allocation_seen {
    FLYT_HELD_IS_GONE = 1 << 0,    /* its node has nothing of it any more */
    FLYT_HELD_IS_MADE = 1 << 1,    /* else it is being made: nobody knows of it */
    FLYT_HELD_IS_WRITTEN = 1 << 2, /* as it is now */
    FLYT_HELD_HAS_FAILED = 1 << 3, /* a write of it as it is now */
    FLYT_HELD_IS_ADOPTED = 1 << 4, /* an orphan that an operator wants kept: that is being written */
    FLYT_HELD_IS_LEAVING = 1 << 5,
    FLYT_HELD_IS_REFUSED = 1 << 6,    /* its node never had it, and does not take it */
    FLYT_HELD_HAS_EMPTIED = 1 << 7,   /* something that was taken away is in use no more */
    FLYT_HELD_IS_CLOSING = 1 << 8,    /* blocked to be taken away, if no program comes before its node knows */
    FLYT_HELD_IS_APPLIED = 1 << 9,    /* its node has it as it is now */
    FLYT_HELD_IS_USED = 1 << 10,      /* it has sessions */
    FLYT_HELD_IS_QUIET = 1 << 11,     /* none, and nothing is under way that changes it */
    FLYT_HELD_HAS_LINGERED = 1 << 12, /* as long as one that is not reserved does */
    FLYT_HELD_IS_REMOVED = 1 << 13,   /* it is blocked, for its VM's document was deleted */
    FLYT_HELD_IS_KNOWN = 1 << 14,     /* its VM is */
    FLYT_HELD_IS_DUE = 1 << 15,       /* store or node lack what it is now, and it is time to try again */
    FLYT_HELD_IS_REACHED = 1 << 16,   /* its node is connected */
};

enum flyt_allocation_step {
    FLYT_HELD_WAIT,
    FLYT_HELD_FORGET,
    FLYT_HELD_TAKE_BACK, /* the store did not take what was being made */
    FLYT_HELD_GRANT,
    FLYT_HELD_ORPHAN, /* the store did not take the adoption: it is an orphan again */
    FLYT_HELD_ADOPT,
    FLYT_HELD_RELEASE, /* what was taken away and has emptied is free */
    FLYT_HELD_OPEN,    /* programs came before it was taken away */
    FLYT_HELD_CLOSE,   /* new programs are let in no more; whether there are any then decides */
    FLYT_HELD_END_REFUSED,
    FLYT_HELD_END_IDLE,
    FLYT_HELD_END_REMOVED,
    FLYT_HELD_END_UNUSED, /* its VM is not known */
    FLYT_HELD_WRITE,      /* again */
    FLYT_HELD_ORDER,      /* again */
};

/* seen: of enum flyt_allocation_seen. */
enum flyt_allocation_step flyt_allocation_next(unsigned seen);

/* ---- who waits for a grant ---- */

/* What is seen of the allocation of a VM whose programs wait; "asked": since its node, or the store, was for them. */
enum flyt_attach_seen {
    FLYT_ATTACH_IS_HELD = 1 << 0, /* there is one */
    FLYT_ATTACH_IS_MADE = 1 << 1, /* else it is being made */
    FLYT_ATTACH_IS_ASKED = 1 << 2,
    FLYT_ATTACH_HAS_FAILED = 1 << 3,   /* asked: the write that lets new programs in */
    FLYT_ATTACH_IS_ANSWERED = 1 << 4,  /* asked: the node's answer is there, or there is none */
    FLYT_ATTACH_IS_UNREACHED = 1 << 5, /* there is none */
    FLYT_ATTACH_IS_REFUSED = 1 << 6,
    FLYT_ATTACH_IS_AWAITED = 1 << 7, /* the node is about to come back */
    FLYT_ATTACH_IS_AWAY = 1 << 8,    /* it is not connected */
    FLYT_ATTACH_IS_CLOSING = 1 << 9,
    FLYT_ATTACH_IS_BLOCKED = 1 << 10,
    FLYT_ATTACH_IS_OPEN = 1 << 11,    /* the node lets new programs in */
    FLYT_ATTACH_IS_WRITTEN = 1 << 12, /* that it is to */
    FLYT_ATTACH_IS_LEAVING = 1 << 13, /* its programs leave the node, which denies new ones by then */
    FLYT_ATTACH_IS_UNKNOWN = 1 << 14, /* whether the store has it: it does not answer */
};

/* What begins with SAY answers who waits. */
enum flyt_attach_step {
    FLYT_ATTACH_WAIT,
    FLYT_ATTACH_PLACE,
    FLYT_ATTACH_WAIT_FOR_NODE, /* which is asked anew when it is there */
    FLYT_ATTACH_OPEN,
    FLYT_ATTACH_WRITE, /* that new programs are let in, and order it */
    FLYT_ATTACH_ORDER,
    FLYT_ATTACH_SAY_GRANTED,
    FLYT_ATTACH_SAY_UNKNOWN,
    FLYT_ATTACH_SAY_UNWRITTEN,
    FLYT_ATTACH_SAY_UNREACHED,
    FLYT_ATTACH_SAY_REFUSED,
    FLYT_ATTACH_SAY_AWAY,
    FLYT_ATTACH_SAY_REMOVED, /* the VM was */
};

enum flyt_attach_step flyt_attach_next(unsigned seen);

#endif

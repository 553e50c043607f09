"""Kinds of objects: their ids, the session's tables of them, and what is done with all of a kind."""
import re

from driver_rows import kinds_of, setters_of
from wire import makers


def find_function(kind):
    return f"""/* {kind.place} */
struct flyt_{kind.name} *flyt_session_find_{kind.name}(struct flyt_session *session, uint64_t id)
{{
    return flyt_id_type(id) == FLYT_ID_{kind.name.upper()}
               ? flyt_idtable_find(&session->objects.tables[FLYT_OBJECTS_{kind.name.upper()}], flyt_id_number(id)) : NULL;
}}
"""


def objects_c(tables, banner):
    finds = [find_function(kind) for kind in tables.kinds.values() if kind.is_kept and not kind.reason]
    return "\n".join([banner, '#include "flyt_objects.h"', '#include "cpu/server/core/session.h"', ""] + finds)


def plural(name):
    return re.sub(r"([^aeiou])y$", r"\1ie", name) + "s"


def is_unanswered(tables, kind):
    """Whether the client hears nothing when one cannot be made."""
    return any(not p.has_reply for p in tables.procedures for one in p.args if one.is_new and one.type == kind.name)


def objects_all_c(tables, banner):
    """What is done with all objects, kind by kind: of one, by the function that knows the kind."""
    kept = [kind for kind in tables.kinds.values() if kind.is_kept]
    visits = "\n".join(f"""/* {kind.place} */
static int drop_{kind.name}(void *user, uint64_t number, void *object)
{{
    flyt_{kind.name}_drop(object, user);
    return 0;
}}
""" for kind in kept)
    digests = "".join(f"""
static uint64_t digest_{kind.name}(const void *object)
{{
    return flyt_{kind.name}_digest(object);
}}
""" for kind in kinds_of(tables))
    noted = {one.type for p in makers(tables) if not p.driver for one in p.args if one.is_new} | {kind.name for kind in kept if kind.is_noted}
    digests += "".join(f"""
static uint64_t digest_{name}(const void *object)
{{
    return flyt_object_digest(object); /* it begins with one */
}}
""" for name in sorted(noted))
    compared = noted | {kind.name for kind in kinds_of(tables)}
    calls = "".join(f"    flyt_objects_each(&session->objects, FLYT_OBJECTS_{kind.name.upper()}, drop_{kind.name}, device);\n"
                    for kind in kept)
    rows = "".join(f'    [FLYT_OBJECTS_{kind.name.upper()}] = {{"{plural(kind.name)}", FLYT_ID_{kind.name.upper()}, {kind.first}, '
                   f'{"true" if is_unanswered(tables, kind) else "false"}, {"digest_" + kind.name if kind.name in compared else "NULL"}}},\n' for kind in kept)
    return f"""{banner}
#include "cpu/server/core/session.h"
#include "flyt_objects.h"

{visits}{digests}
const struct flyt_objects_row flyt_objects_rows[FLYT_OBJECTS_KINDS] = {{
{rows}}};

void flyt_objects_drop(struct flyt_session *session, struct flyt_device *device)
{{
{calls}}}

struct counting {{
    const struct flyt_objects_row *row;
    struct flyt_objects_tally tally;
}};

static int count(void *user, uint64_t number, void *object)
{{
    struct counting *self = user;
    if (number < self->row->first)
        return 0;
    self->tally.count++;
    self->tally.digest += self->row->digest ? self->row->digest(object) : 0;
    return 0;
}}

struct flyt_objects_tally flyt_objects_tally(struct flyt_objects *objects, enum flyt_objects_of kind)
{{
    struct counting self = {{&flyt_objects_rows[kind], {{0, 0}}}};
    flyt_objects_each(objects, kind, count, &self);
    return self.tally;
}}
"""


def ids_h(tables, banner):
    """Every kind that has ids, and the tables of objects that a session has."""
    kinds = list(tables.kinds.values())
    kept = [kind for kind in kinds if kind.is_kept]
    types = ",\n".join(f"    FLYT_ID_{kind.name.upper()} = {kind.number:#x}" for kind in kinds)
    firsts = "".join(f"enum {{ FLYT_ID_{kind.name.upper()}_FIRST = {kind.first} }};\n" for kind in kinds if kind.first > 1)
    tables_of = "".join(f"    FLYT_OBJECTS_{kind.name.upper()},\n" for kind in kept)
    cases = "".join(f"    case FLYT_ID_{kind.name.upper()}:\n        return FLYT_OBJECTS_{kind.name.upper()};\n" for kind in kept)
    return f"""{banner}
#ifndef FLYT_GEN_IDS_H
#define FLYT_GEN_IDS_H

/* The top byte of an id. */
enum flyt_id_type {{
{types}
}};

/* Where the client's numbers of a kind begin that has others by rule. */
{firsts}
/* The tables of objects that a session has on its server. */
enum flyt_objects_of {{
{tables_of}    FLYT_OBJECTS_KINDS
}};

/* The table of a type of ids; FLYT_OBJECTS_KINDS: it has none. */
static inline enum flyt_objects_of flyt_objects_of(unsigned type)
{{
    switch (type) {{
{cases}    default:
        return FLYT_OBJECTS_KINDS;
    }}
}}

#endif
"""


def made_struct(tables, kind):
    """The server's object of a kind that is the driver's alone."""
    count = len(setters_of(tables, kind))
    return f"""
/* {kind.place} */
struct flyt_{kind.name} {{
    struct flyt_object object;
    struct flyt_device *device;
    {kind.c_type} cu_{kind.name};
    uint64_t made; /* a digest of what it was made of */
{f"    uint64_t set[{count}]; /* likewise of what was set of it; 0: nothing */" + chr(10) if count else ""}}};
/* Also takes it out of its table. The driver's result. */
CUresult flyt_{kind.name}_end(struct flyt_{kind.name} *one);
/* Equal for what is made again with the same id, on the same device, and set to the same. */
uint64_t flyt_{kind.name}_digest(const struct flyt_{kind.name} *one);
"""


def objects_h(tables, banner):
    """What finds an object by its id, and what each kind is to bring along."""
    finds = "".join(f"struct flyt_{name} *flyt_session_find_{name}(struct flyt_session *session, uint64_t id);\n"
                    for name in tables.handles)
    structs = "".join(f"struct flyt_{name};\n" for name in tables.handles)
    drops = "".join(f"void flyt_{kind.name}_drop(struct flyt_{kind.name} *one, const struct flyt_device *device);\n"
                    for kind in tables.kinds.values() if kind.is_kept)
    made = "".join(made_struct(tables, kind) for kind in kinds_of(tables))
    return f"""{banner}
#ifndef FLYT_GEN_OBJECTS_H
#define FLYT_GEN_OBJECTS_H
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include "cpu/server/core/object.h"

struct flyt_device;
struct flyt_session;
{structs}
/* The object of an id of the type, or NULL. */
{finds}
/* Takes the object out of its table and lets go of what it has, if it goes with the device (reset), or anyhow (NULL: the
 * session ends, and no job or deferred call is left). */
{drops}
/* All that a session has of the device, or at all (NULL). */
void flyt_objects_drop(struct flyt_session *session, struct flyt_device *device);
{made}
/* What rows say of the kinds that a session has in tables. */
struct flyt_objects_row {{
    const char *plural;
    enum flyt_id_type type;
    uint64_t first;     /* numbers below are not of the client's objects */
    bool is_unanswered; /* of one that cannot be made the client hears nothing */
    uint64_t (*digest)(const void *object); /* of what it is; NULL: that is compared otherwise, if at all */
}};
extern const struct flyt_objects_row flyt_objects_rows[FLYT_OBJECTS_KINDS];

/* How many of the client's there are of a kind, and a sum of their digests. */
struct flyt_objects_tally {{
    uint64_t count, digest;
}};
struct flyt_objects_tally flyt_objects_tally(struct flyt_objects *objects, enum flyt_objects_of kind);

#endif
"""

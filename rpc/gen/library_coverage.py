"""Counts how the functions of NVIDIA's libraries are answered, by library and class, and why others are refused: parts of coverage.md."""
import library_rows

# class -> what it means; the classes of one meaning stand together.
MEANINGS = {("stream",): "work in a stream; not awaited once its like has succeeded", ("sync", "cached", "more", "aside"): "asked of the server",
            ("new", "end"): "makes or ends an object",
            ("set", "get", "attributes", "make", "unmake", "fill", "tell"): "kept and answered in the client", ("hand",): "by hand, for the reason in its row",
            ("none",): "refused by name"}
# For one line of a library: what is sent, answered where the program is, by hand, refused.
SENT, KEPT, BY_HAND, REFUSED = ({"stream", "sync", "cached", "more", "aside", "new", "end"},
                                {"set", "get", "attributes", "make", "unmake", "fill", "tell"}, {"hand"}, {"none"})


def counts(library):
    """How many of a library's functions are sent, answered in the client, by hand, and refused."""
    unknown = {call.kind for call in library.calls} - {kind for kinds in MEANINGS for kind in kinds}
    if unknown:
        raise library_rows.RowError(f"{library.name}.rows: no meaning of {' '.join(sorted(unknown))}")
    return [sum(call.kind in kinds for call in library.calls) for kinds in (SENT, KEPT, BY_HAND, REFUSED)]


def table(libraries):
    names = [library.soname for library in libraries]
    out = ["| class | " + " | ".join(f"`{name}`" for name in names) + " | meaning |", "|---|" + "---:|" * len(names) + "---|"]
    for kinds, meaning in MEANINGS.items():
        counts = [sum(call.kind in kinds for call in library.calls) for library in libraries]
        out.append(f"| {', '.join(f'`{kind}`' for kind in kinds)} | " + " | ".join(map(str, counts)) + f" | {meaning} |")
    out.append("| **all** | " + " | ".join(f"**{len(library.calls)}**" for library in libraries) + " | |")
    return out


def reasons(libraries):
    out = ["| refused | library | functions |", "|---|---|---:|"]
    for library in libraries:
        counts = {}
        for call in library.calls:
            if call.kind == "none":
                counts[call.reason] = counts.get(call.reason, 0) + 1
        out += [f"| {reason} | `{library.soname}` | {count} |" for reason, count in sorted(counts.items())]
    return out

"""What a program has printed natively and through Flyt, side by side: each figure with its ratio to the native one; the losses, too,
which must be alike.

usage: ways.py FILE...     each has the output of one way, which its name ends with (gpt.native, gpt.unix); the first is native

A figure is a line "NAME VALUE UNIT"; losses are a line "losses" with numbers up to the first word that is none. They are alike
where they differ by no more than a twentieth of the first one: what is added up on a GPU in any order differs a little, and each
step takes that further.
"""
import itertools
import sys

ALIKE = 1 / 20


def number(word):
    try:
        return float(word)
    except ValueError:
        return None


def read(path):
    """({name: (value, unit)}, losses)"""
    figures, losses = {}, []
    with open(path, encoding="utf-8") as file:
        for words in map(str.split, file):
            if words[:1] == ["losses"]:
                losses = list(itertools.takewhile(lambda value: value is not None, map(number, words[1:])))
            elif len(words) == 3 and number(words[1]) is not None:
                figures[words[0]] = number(words[1]), words[2]
    return figures, losses


def table(ways):
    """Lines of {way: {name: (value, unit)}}, whose first way is native."""
    native, *others = ways
    lines = []
    for name, (value, unit) in ways[native].items():
        words = ["%s %.2f" % (native, value)]
        for way in others:
            if name not in ways[way]:
                sys.exit("%s: no %s was printed" % (way, name))
            words.append("%s %.2f, ratio %.2f" % (way, ways[way][name][0], ways[way][name][0] / value))
        lines.append("%s (%s): %s" % (name, unit, "; ".join(words)))
    return lines


def compare(native, others):
    """Says how far losses are from the native ones, and ends where they are not alike."""
    if not native:
        sys.exit("no losses were printed natively")
    for way, losses in others.items():
        apart = [abs(one - other) for one, other in zip(losses, native)]
        if len(losses) != len(native) or not all(one <= ALIKE * abs(native[0]) for one in apart):
            sys.exit("losses %s: %s, natively %s" % (way, losses, native))
        print("losses %s: at most %.6f from the native ones" % (way, max(apart)))


def main():
    said = {path.rsplit(".", 1)[-1]: read(path) for path in sys.argv[1:]}
    print("\n".join(table({way: figures for way, (figures, _) in said.items()})))
    native, *others = said
    compare(said[native][1], {way: said[way][1] for way in others})


if __name__ == "__main__":
    main()

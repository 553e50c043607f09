"""What one step of a program costs on the wire, from the lines that two runs of it have left by FLYT_STATS.

usage: per_step.py MORE FILE     FILE's last two lines: of a run, and of one with MORE steps more
"""
import sys

COUNTS = (("calls", "calls"), ("replies", "synchronous calls"), ("sent_bytes", "bytes sent"), ("received_bytes", "bytes received"),
          ("launches", "launches"))


def counts(line):
    return {name: float(value) for name, _, value in (word.partition("=") for word in line.split()) if value.replace(".", "", 1).isdigit()}


def main():
    more = int(sys.argv[1])
    with open(sys.argv[2], encoding="utf-8") as file:
        lines = [counts(line) for line in file if line.startswith("program=")]
    if len(lines) < 2 or more < 1:
        sys.exit("per_step.py: two runs are wanted, of which the second has more steps")
    print("per step:", ", ".join("%.1f %s" % ((lines[-1][name] - lines[-2][name]) / more, what) for name, what in COUNTS))


if __name__ == "__main__":
    main()

"""What the programs of this folder that compare have in common: named checks, a line for each."""
import sys
import traceback

CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def main(synchronize):
    """Makes the checks that the command line names, or all. Errors that come late belong to the check before `synchronize`."""
    names, failed = sys.argv[1:] or list(CHECKS), 0
    for name in names:
        try:
            CHECKS[name]()
            synchronize()
            print("ok", name, flush=True)
        except Exception as error:  # the next check is tried, too
            failed += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = str(error).splitlines()[0][:200] if str(error) else ""
            print("FAIL %s: %s: %s (%s:%d)" % (name, type(error).__name__, said, where.filename.rsplit("/", 1)[-1], where.lineno),
                  flush=True)
    sys.exit(failed != 0)

"""What proves the rest right: `rule` certifies rewrite rules, `strategies` makes random typed programs.

Everything here is also for rules and programs of one's own: `waxeq.testing.rule.check_files([path])`.
"""

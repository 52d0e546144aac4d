"""Run folders that are not on a disk of the machine that trains.

A run trains in a scratch folder of its node (`away`), and a `Mirror` brings what is complete to a `Storage`: a folder
on a disk (`LocalStorage`), any URL that `fsspec` knows (`UrlStorage`), or the machine of the command, through messages
(`MailboxStorage`). `home` is the command's own copy of a folder at a URL. All keep one promise: a file appears whole or
not at all, a checkpoint when all of it is there, and the one before stays until then.
"""

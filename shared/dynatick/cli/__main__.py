from dynatick.cli import main

main()
